"""Inputs to flash-linear-attention's kernels for the scans of linear mixers. Its operators are taken token by token, as
their papers write them, and compared with the plain scan. The kernels themselves need a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.step_memory import foreseen
from tests.zoo.slow import layer_of, random_stream
from zoo.attend import executed_backends
from zoo.kernels.fla import ScanKernels, can_scan, kernels_in_use, scan_kernels, use_fla
from zoo.kernels.fla_operators import NAMES
from zoo.mixers import Mixer
from zoo.mixers._delta import delta_scan
from zoo.mixers._scan import scan
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.mixers.gla import GatedLinearAttention
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.lightning import LightningAttention
from zoo.mixers.linear_attention import LinearAttention
from zoo.mixers.mamba2 import Mamba2
from zoo.mixers.mamba3 import Mamba3
from zoo.mixers.retention import Retention
from zoo.site import ForwardPass

NAME = "flash-linear-attention 0.6.0"
ON_CPU = ScanKernels(NAME, "cpu", torch.float64)
D, T = 12, 66
MIXERS: dict[str, Mixer] = {
    "gated_deltanet": GatedDeltaNet(heads=4, k_heads=2, head_dim=16, v_dim=8),
    "kda": KimiDeltaAttention(heads=2, head_dim=16),
    "gla": GatedLinearAttention(heads=2, head_dim=16, v_dim=8, rank=2),
    "lightning": LightningAttention(heads=2, head_dim=16),
    "retention": Retention(heads=2, head_dim=16, v_dim=24),
    "mamba2": Mamba2(heads=4, head_dim=8, state=16, groups=2),
    "mamba3": Mamba3(heads=4, head_dim=8, state=16, groups=2),
}


def by_token(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """S = diag(exp(g)) S, S += k (β (v − Sᵀ k))ᵀ, or k vᵀ without β, o = scale · Sᵀ q. q, k: (B, T, G, n),
    v: (B, T, H, p), g: (B, T, H) or (B, T, H, n). Yang et al., arXiv:2312.06635 and 2412.06464, Kimi Team,
    arXiv:2510.26692."""
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
    g = g if g.dim() == 4 else g[..., None]
    state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3]) if initial_state is None else initial_state
    outs = []
    for t in range(v.shape[1]):
        state = g[:, t, :, :, None].exp() * state
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("bhnp,bhn->bhp", state, k[:, t]))
        state = state + torch.einsum("bhn,bhp->bhnp", k[:, t], new)
        outs.append(scale * torch.einsum("bhnp,bhn->bhp", state, q[:, t]))
    return torch.stack(outs, dim=1), state if output_final_state else None


def checked(name: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The operator, which refuses what the real one refuses."""

    def operator(q: Tensor, k: Tensor, v: Tensor, g: Tensor, **given: Any) -> tuple[Tensor, Tensor | None]:
        batch, length, heads, _ = v.shape
        assert q.shape == k.shape and k.shape[:2] == (batch, length)
        assert heads % k.shape[2] == 0 if "delta" in name or name == "kda" else heads == k.shape[2]
        assert g.shape == ((batch, length, heads, k.shape[3]) if name in ("gla", "kda") else (batch, length, heads))
        if "beta" in given:
            assert given["beta"].shape == (batch, length, heads)
        return by_token(q, k, v, g, **given)

    return operator


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installed and in use, in float64 on a CPU."""
    for name in NAMES.values():
        module: Any = ModuleType(f"fla.ops.{name}")
        setattr(module, f"chunk_{name}", checked(name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with scan_kernels(ON_CPU):
        yield


@pytest.mark.parametrize("spec", MIXERS.values(), ids=MIXERS)
def test_a_mixer_is_the_same_with_the_kernels(spec: Mixer, kernels: None) -> None:
    """Gradients included, and with a state that goes from one text to the next and on to a token by itself."""
    layer, found = layer_of(spec, D), []
    texts = [random_stream(length, D, seed) for seed, length in enumerate((T, T, 1))]
    for used in (ON_CPU, None):
        layer.zero_grad()
        x = texts[0].clone().requires_grad_()
        training_backends, reading_backends = executed_backends(training=True), executed_backends(training=False)
        with scan_kernels(used), training_backends as training, reading_backends as reading:
            out = layer(x, ForwardPass.of(torch.zeros(1, T)))
            out.square().sum().backward()
            cache = layer.new_cache(1, 2 * T + 1, torch.float64)
            with torch.no_grad():
                read = [layer(each, ForwardPass.of(torch.zeros(each.shape[:2])), cache) for each in texts]
        assert training == reading == ({NAME} if used else set())
        found.append([out, x.grad, *read, *(parameter.grad for parameter in layer.parameters())])
    for with_kernels, plain in zip(*found, strict=True):
        torch.testing.assert_close(with_kernels, plain, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(LinearAttention(heads=2, head_dim=16), id="its sum of weights is one more value, no 16 bytes"),
        pytest.param(Mamba3(heads=2, head_dim=8, state=16, rank=2), id="a token has several keys"),
    ],
)
def test_what_the_kernels_cannot_do_keeps_the_plain_scan(spec: Mixer, kernels: None) -> None:
    layer = layer_of(spec, D)
    with executed_backends(training=True) as taken:
        layer(random_stream(T, D), ForwardPass.of(torch.zeros(1, T)))
    assert taken == set()


def parts(batch: int = 1, heads: int = 2, length: int = T, features: int = 16, values: int = 8) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(batch, heads, length, *shape, generator=draw, dtype=torch.float64)

    made = {
        "q": drawn(features) * features**-0.5,
        "k": F.normalize(drawn(features), dim=-1),
        "v": drawn(values),
        "decay": F.logsigmoid(drawn()),
        "strength": drawn().sigmoid(),
        "channels": F.logsigmoid(drawn(features)),
    }
    return {name: each.requires_grad_() for name, each in made.items()}


def test_a_compiled_step_is_one_graph_with_the_kernels(kernels: None) -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, channels: Tensor) -> Tensor:
        return (scan(q, k, v, decay, 8) + delta_scan(q, k, v, channels, strength, 8)).square().sum()

    found = []
    for step in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        given = parts()
        step(**given).backward()
        found.append([each.grad for each in given.values()])
    torch.testing.assert_close(found[1], found[0])


def test_torch_accepts_the_operator(kernels: None) -> None:
    """Its schema, its shapes without data, and its gradient."""
    names = ("q", "k", "v", "decay", "strength")
    given = [parts()[name].detach().transpose(1, 2).requires_grad_() for name in names]
    state = torch.randn(1, 2, 16, 8, dtype=torch.float64)
    torch.library.opcheck(torch.ops.ablate_fla.scan.default, (*given, state, True))


def test_a_step_is_foreseen_with_the_kernels(kernels: None) -> None:
    """They keep only what they read."""
    mixer = {"kind": "gated_deltanet", "heads": 2, "head_dim": 16, "v_dim": 32}
    model = zoo.load("small", d_model=32, n_layers=1, vocab_size=31, **{"block.mixer": mixer})
    train = TrainSpec(context=128, batch=8, dtype="bfloat16")
    numerics = Numerics("cpu", "bfloat16", "highest")
    with scan_kernels(ScanKernels(NAME, "cpu")):
        with_kernels = foreseen(model, train, numerics)
    with scan_kernels(None):
        plain = foreseen(model, train, Numerics("cpu", "bfloat16", "high"))  # what it was asked before, it remembers
    assert with_kernels.attention == NAME and plain.attention is None
    assert with_kernels.peak_memory_bytes and plain.peak_memory_bytes
    assert with_kernels.peak_memory_bytes < plain.peak_memory_bytes


@pytest.mark.parametrize(
    ("differently", "can"),
    [
        ({}, True),
        ({"dtype": torch.float32}, False),
        ({"device": "cpu"}, False),
        ({"length": 63}, False),
        ({"features": 8}, False),
        ({"features": 264}, False),
        ({"values": 12}, False),
    ],
    ids=str,
)
def test_the_kernels_are_given_what_they_can_do(differently: dict[str, Any], can: bool) -> None:
    given: Any = SimpleNamespace(
        **{"device": "cuda", "dtype": torch.bfloat16, "length": 64, "features": 16, "values": 8, **differently}
    )
    with FakeTensorMode(), scan_kernels(ScanKernels(NAME)):
        k, v = (
            torch.empty(1, 2, given.length, size, device=given.device, dtype=given.dtype)
            for size in (given.features, given.values)
        )
        with scan_kernels(None):
            assert not can_scan(k, k, v), "they are not in use"
        assert can_scan(k, k, v) is can
        torch.use_deterministic_algorithms(True)
        try:
            assert not can_scan(k, k, v), "their blocks are chosen by timing"
        finally:
            torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("version", "capability", "used"),
    [(None, (9, 0), None), ("0.5.9", (9, 0), None), ("0.6.0", (7, 5), None), ("0.6.0", (8, 0), ScanKernels(NAME))],
)
def test_the_kernels_are_used_where_they_are_installed(
    version: str | None, capability: tuple[int, int], used: ScanKernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str:
        if version is None or name != "fla-core":
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", found)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with scan_kernels(None):
        assert use_fla() is bool(used)
        assert use_fla() is bool(used)
        assert kernels_in_use() == used


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES.values())
def test_a_kernel_is_the_plain_scan(name: str) -> None:
    """The kernel agrees with the plain scan to the precision of bfloat16."""
    with scan_kernels(None):
        if not use_fla():
            pytest.skip("fla-core is not installed")
        kernels, found = kernels_in_use(), []
    assert kernels is not None
    decay = "channels" if name in ("gla", "kda") else "decay"
    for used in (kernels, None):
        given = {key: x.detach().cuda().requires_grad_() for key, x in parts(2, 4, 200, 64, 128).items()}
        q, k, v = (given[key].bfloat16() for key in "qkv")
        forget = given[decay].float()
        with scan_kernels(used), executed_backends(training=True) as taken:
            if name in ("gla", "simple_gla"):
                out = scan(q, k, v, forget, 64)
            else:
                out = delta_scan(q, k, v, forget, given["strength"].float(), 64)
            out.float().square().sum().backward()
        assert taken == ({used.library} if used else set())
        found.append([out.double(), *(x.grad for x in given.values() if x.grad is not None)])
    for with_kernel, plain in zip(*found, strict=True):
        assert (with_kernel - plain).norm() < 0.02 * plain.norm()
