"""flex_attention against the plain backend, and the pick between backends.

No GPU is needed: the kernel's own definition runs on a CPU. That the programs that are compiled for CUDA agree with it
is a test marked `gpu`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.functional import scaled_dot_product_attention

import zoo
from zoo.attend import attend, attention_backend, executed_backends, pick
from zoo.attending.fused import in_groups
from zoo.attending.visible import Needs, Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers._cross import OfMemory
from zoo.sparsities.bigbird import BigBird
from zoo.sparsities.strided import Strided

T = 150
"""More than a block, and not a multiple of one."""
H, K = 4, 2
ENDS = torch.tensor([T, 131])
PADDING = torch.tensor([0, 139])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


VISIBLE: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"window": 40},
    "prefix": {"mask_kind": "prefix", "prefix_ends": torch.tensor([3, 140])},
    "left padding": {"left_pad": PADDING},
    "window over padding": {"window": 40, "left_pad": PADDING},
    "both ways, padded": {"mask_kind": "all", "ends": ENDS},
    "all": {"mask_kind": "all"},
    "bigbird": {"pattern": BigBird(block=8)},
    "strided": {"pattern": Strided(stride=12)},
}
SCORING: dict[str, dict[str, Any]] = {
    "plain": {},
    "softcap": {"softcap": 1.5},
    "bias by head": {"bias": drawn(H, T, T)},
    "bias by row and key": {"bias": drawn(2, 1, 1, T)},
    "one bias for all": {"bias": drawn(1, T, T)},
    "sinks": {"sinks": drawn(H)},
    "all of it": {"softcap": 1.5, "bias": drawn(H, T, T), "sinks": drawn(H)},
}
TOGETHER = [*((name, "plain") for name in VISIBLE), *(("window", name) for name in SCORING), ("all", "all of it")]


def leaves(scoring: dict[str, Any]) -> tuple[list[Tensor], dict[str, Any]]:
    """Queries, keys, values, and a scoring whose tensors learn."""
    learned = {name: value.clone().requires_grad_() for name, value in scoring.items() if isinstance(value, Tensor)}
    shapes = ((2, H, T, 6), (2, K, T, 6), (2, K, T, 5))
    qkv = [drawn(*shape, seed=1 + n).requires_grad_() for n, shape in enumerate(shapes)]
    return [*qkv, *learned.values()], scoring | learned


@pytest.mark.parametrize(("visible", "scoring"), TOGETHER, ids=str)
def test_flex_is_the_reference(visible: str, scoring: str) -> None:
    """Outputs and the gradients of what is learned agree in float64."""
    index, found = torch.arange(T), []
    for backend in ("plain", "flex"):
        learned, how = leaves(SCORING[scoring])
        with attention_backend(backend):
            out = attend(*learned[:3], Visible(index, index, **VISIBLE[visible]), Scoring(0.4, **how))
        out.square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in learned)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("text", [None, torch.arange(37) < torch.tensor([[37], [20]])], ids=["whole", "padded"])
def test_flex_reads_an_encoder(text: Tensor | None) -> None:
    """A mask without an axis of queries, and fewer keys."""
    found = []
    for backend in ("plain", "flex"):
        learned = [drawn(2, H, T, 6), drawn(2, K, 37, 6, seed=1), drawn(2, K, 37, 5, seed=2)]
        learned = [each.requires_grad_() for each in learned]
        visible = OfMemory(torch.arange(T), torch.arange(37), mask_kind="all", text=text)
        with attention_backend(backend):
            out = attend(*learned, visible, Scoring(0.4))
        out.square().sum().backward()
        found.append([out.detach(), *(each.grad for each in learned)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-11)


def test_flex_refuses_dropout() -> None:
    index, q = torch.arange(9), torch.randn(1, 2, 9, 6)
    with (
        attention_backend("flex"),
        pytest.raises(ValueError, match="the flex backend does not support dropout: use plain"),
    ):
        attend(q, q, q, Visible(index, index), Scoring(1.0, dropout=0.1))


TRAINS = {"queries": 1024, "keys": 1024, "features": (64, 64), "gradient": True}
PICKS = [
    # On CUDA, on a CPU, and what is asked for beside a causal triangle in training.
    ("fused", "fused", {}),
    ("fused", "fused", {"window": 1024}),
    ("varlen", "band", {"window": 256}),
    ("varlen", "fused", {"window": 1000}),
    ("varlen", "band", {"window": 256, "gradient": False}),
    ("flex", "band", {"window": 256, "features": (32, 64)}),
    ("flex", "plain", {"bias": "learned"}),
    ("plain", "plain", {"bias": "learned", "ordered": True}),
    ("flex", "fused", {"bias": "constant", "ordered": True}),
    ("flex", "fused", {"bias": "constant"}),
    ("flex", "plain", {"softcap": True}),
    ("flex", "plain", {"sinks": True, "window": 128}),
    ("flex", "sparse", {"pattern": True}),
    ("flex", "fused", {"aligned": False}),
    ("fused", "fused", {"aligned": False, "everything": True}),
    ("plain", "plain", {"softcap": True, "dropout": True}),
    ("band", "band", {"window": 256, "dropout": True}),
    ("plain", "plain", {"softcap": True, "gradient": False}),
    ("sparse", "sparse", {"pattern": True, "gradient": False}),
    ("fused", "fused", {"pattern": True, "gradient": False, "bias": "constant"}),
    ("plain", "plain", {"softcap": True, "features": (8, 64)}),
    ("plain", "plain", {"softcap": True, "features": (64, 512)}),
    ("plain", "plain", {"softcap": True, "queries": 64, "keys": 64}),
]


@pytest.mark.parametrize(("cuda", "cpu", "asked"), PICKS, ids=str)
def test_the_pick(cuda: str, cpu: str, asked: dict[str, Any]) -> None:
    needs = Needs(**TRAINS | asked)
    assert pick("cuda", torch.bfloat16, needs) == cuda
    assert pick("cpu", torch.bfloat16, needs) == cpu
    assert pick("cuda", torch.float64, needs) == cpu


@pytest.mark.parametrize("mask", [(T, T), (2, 1, T, T), (2, 1, 1, T), (1, H, T, T)], ids=str)
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_mask_over_groups_is_that_over_repeated_heads(mask: tuple[int, ...], kv_heads: int) -> None:
    q, k, v = drawn(2, H, T, 6), drawn(2, kv_heads, T, 6, seed=1), drawn(2, kv_heads, T, 5, seed=2)
    values = drawn(*mask, seed=3)
    whole = (x.repeat_interleave(H // kv_heads, dim=1) for x in (k, v))
    expected = scaled_dot_product_attention(q, *whole, attn_mask=values, scale=0.4)
    torch.testing.assert_close(in_groups(q, k, v, values, Scoring(0.4)), expected)


EDITS: dict[str, dict[str, Any]] = {
    "t5, grouped": {"block.mixer.position": "t5", "block.mixer.kv_heads": 2},
    "alibi": {"block.mixer.position": "alibi"},
    "softcap and sinks": {"block.mixer": {"softcap": 3.0, "sinks": True}},
    "window": {"block.mixer.window": 6},
    "bigbird": {"block.mixer.sparsity": {"kind": "bigbird", "block": 4}},
    "prefix": {"visible": "prefix"},
}

SLOW_BUT_ONE = [next(iter(EDITS)), *(pytest.param(name, marks=pytest.mark.slow) for name in list(EDITS)[1:])]


def step(model: zoo.Decoder, tokens: Tensor) -> Tensor:
    loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    return loss


@pytest.mark.parametrize("name", SLOW_BUT_ONE)
def test_a_model_trains_through_flex_as_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch refuses gradients on a CPU, where its compiled kernel has none: nothing is compiled here."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    spec = zoo.load("small", d_model=16, n_layers=2, **EDITS[name])
    model = random_model(spec).train()
    tokens = random_tokens(spec, 2, 20)
    with attention_backend("plain"):
        expected = step(model, tokens)
    compiled = torch.compile(step, fullgraph=True, dynamic=False, backend="eager")
    with attention_backend("flex"), executed_backends(training=True) as taken:
        for run in (step, compiled):
            model.zero_grad()
            loss = run(model, tokens)
            loss.backward()
            torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert taken == {"flex"}


def test_flex_has_shapes_without_data() -> None:
    """Plans foresee its memory, and the tests of a pretended GPU pass through it."""
    with FakeTensorMode(), attention_backend("flex"):
        q, k = torch.randn(2, H, T, 6, requires_grad=True), torch.randn(2, K, T, 6, requires_grad=True)
        bias, index = torch.randn(H, T, T, requires_grad=True), torch.arange(T)
        out = attend(q, k, k, Visible(index, index, 40), Scoring(0.4, bias=bias))
        out.sum().backward()
    assert (out.shape, bias.grad.shape) == ((2, H, T, 6), (H, T, T))


@pytest.mark.parametrize("backend", ["flex", "plain"])
def test_layers_that_see_the_same_share_one_mask(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pattern is asked once what it sees."""
    pattern = Strided(stride=3)
    spec = zoo.load("small", d_model=16, n_layers=3, **{"block.mixer.sparsity": pattern})
    model, asked, sees = random_model(spec), [], Strided.sees
    monkeypatch.setattr(Strided, "sees", lambda self, *places: asked.append(self) or sees(self, *places))
    with attention_backend(backend):
        model(random_tokens(spec, 1, 20))
    assert asked == [pattern]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, when it loads inductor
def test_the_compiled_kernel_of_a_cpu_is_the_reference() -> None:
    """Without gradients, which it has none of."""
    index, found = torch.arange(T), []
    q, k, v = (drawn(2, heads, T, 16, seed=heads).float() for heads in (H, K, K))
    how = Scoring(0.4, softcap=1.5, bias=drawn(H, T, T).float())
    run = torch.compile(attend, fullgraph=True, dynamic=False)
    for backend, function in (("plain", attend), ("flex", run)):
        with attention_backend(backend), torch.no_grad():
            found.append(function(q, k, v, Visible(index, index, 40), how))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("features", [64, 128, 256])
def test_a_bias_for_every_row_and_key_fits_into_shared_memory(features: int) -> None:
    """In bfloat16, whose blocks are the largest."""
    index, found = torch.arange(300, device="cuda"), []
    for backend in ("plain", "flex"):
        qkv = [drawn(2, H, 300, features, seed=n).bfloat16().cuda().requires_grad_() for n in range(3)]
        bias = drawn(H, 300, 300, seed=3).float().cuda().requires_grad_()
        with attention_backend(backend):
            out = attend(*qkv, Visible(index, index, window=200), Scoring(features**-0.5, bias=bias, softcap=20.0))
        out.float().square().sum().backward()
        found.append([out.detach().float(), *(leaf.grad.float() for leaf in (*qkv, bias) if leaf.grad is not None)])
    torch.testing.assert_close(found[1], found[0], rtol=5e-2, atol=5e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("visible", "scoring"), TOGETHER, ids=str)
def test_the_kernels_of_a_gpu_are_the_reference(visible: str, scoring: str) -> None:
    found = []
    seen = {name: each.cuda() if isinstance(each, Tensor) else each for name, each in VISIBLE[visible].items()}
    shapes = ((2, H, T, 16), (2, K, T, 16), (2, K, T, 32))
    for backend in ("plain", "flex"):
        qkv = [drawn(*shape, seed=1 + n).float().cuda().requires_grad_() for n, shape in enumerate(shapes)]
        how = {n: x.float().cuda() if isinstance(x, Tensor) else x for n, x in SCORING[scoring].items()}
        learned = [x.requires_grad_() for x in how.values() if isinstance(x, Tensor)]
        index = torch.arange(T, device="cuda")
        with attention_backend(backend):
            out = attend(*qkv, Visible(index, index, **seen), Scoring(0.25, **how))
        out.square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in (*qkv, *learned))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)
