"""Sparse patterns: the papers' sets of keys, spelled out, against masks, blocks, caches and declared costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import zoo
from tests.zoo.slow import layer_of, maps, mix, project, random_stream, run, write
from zoo.attend import attend, attention_backend
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers.attention import Attention
from zoo.positions.nope import NoPE
from zoo.site import ForwardPass
from zoo.sparsities import Sparsity
from zoo.sparsities.bigbird import BigBird
from zoo.sparsities.chunked import Chunked
from zoo.sparsities.dilated import Dilated
from zoo.sparsities.longformer import Longformer
from zoo.sparsities.strided import Strided

T = 37
Sees = Callable[[int, int], bool]

PATTERNS: dict[str, tuple[Sparsity, Sees]] = {
    "longformer": (Longformer(window=5, global_tokens=2), lambda i, j: i - j < 5 or j < 2),
    "longformer with more global tokens than a window": (
        Longformer(window=3, global_tokens=7),
        lambda i, j: i - j < 3 or j < 7,
    ),
    "longformer of a window alone": (Longformer(window=4, global_tokens=0), lambda i, j: i - j < 4),
    "bigbird without chance": (
        BigBird(block=4, window_blocks=2, global_blocks=1, random_blocks=0),
        lambda i, j: i // 4 - j // 4 < 2 or j // 4 < 1,
    ),
    "dilated": (Dilated(window=3, dilation=4), lambda i, j: (i - j) in (0, 4, 8)),
    "dilated without end": (Dilated(window=None, dilation=5), lambda i, j: (i - j) % 5 == 0),
    "dilated by one": (Dilated(window=6, dilation=1), lambda i, j: i - j < 6),
    "chunked": (Chunked(chunk=8), lambda i, j: i // 8 == j // 8),
    "chunked as a whole": (Chunked(chunk=50), lambda i, j: True),
    "strided": (Strided(stride=6), lambda i, j: i - j < 6 or (i - j) % 6 == 0),
    "strided over all": (Strided(stride=50), lambda i, j: True),
}
RANDOM = [
    BigBird(block=2, window_blocks=2, global_blocks=1, random_blocks=3),
    BigBird(block=3, window_blocks=1, global_blocks=0, random_blocks=2, seed=4),
]
every_pattern = pytest.mark.parametrize(("pattern", "sees"), PATTERNS.values(), ids=PATTERNS)
ALL: list[Sparsity] = [*(pattern for pattern, _ in PATTERNS.values()), *RANDOM]


def seen(pattern: Sparsity, length: int) -> Tensor:
    """(T, T) bool, by the pattern's own rule."""
    place = torch.arange(length)
    return Visible(place, place, pattern=pattern).mask()


@every_pattern
def test_what_is_seen_is_the_papers_set(pattern: Sparsity, sees: Sees) -> None:
    expected = [[j <= i and sees(i, j) for j in range(T)] for i in range(T)]
    assert seen(pattern, T).tolist() == expected


@pytest.mark.parametrize("pattern", ALL, ids=str)
def test_declared_pairs_are_those_of_the_mask(pattern: Sparsity) -> None:
    for length in (1, 2, 3, 7, 16, T, 64, 101):
        assert pattern.pairs(length) == int(seen(pattern, length).sum())


@pytest.mark.parametrize("pattern", RANDOM, ids=str)
def test_random_blocks_are_distinct_earlier_and_spread(pattern: BigBird) -> None:
    """r of them where there are so many, none in the window or among the first, and early blocks as often as late."""
    size, count = pattern.block, 200
    blocks = seen(pattern, size * count)[::size, ::size]
    for n in range(count):
        drawn = [m for m in range(pattern.global_blocks, n - pattern.window_blocks + 1) if blocks[n, m]]
        assert len(drawn) == min(pattern.random_blocks, max(0, n - pattern.window_blocks - pattern.global_blocks + 1))
    drawn_per_ten = blocks[100:, 1:51].sum(dim=0).unflatten(0, (5, 10)).sum(dim=1)
    between = (n - pattern.window_blocks - pattern.global_blocks + 1 for n in range(100, count))
    expected = sum(10 * pattern.random_blocks / blocks_between for blocks_between in between)
    assert (drawn_per_ten - expected).abs().max() <= 4 * expected**0.5
    assert not torch.equal(blocks, seen(pattern.model_copy(update={"seed": 9}), size * count)[::size, ::size])


@pytest.mark.parametrize("pattern", ALL, ids=str)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("length", [T, 3, 1])
def test_blocks_give_what_the_mask_gives(pattern: Sparsity, kv_heads: int, length: int) -> None:
    """The gradients too."""
    generator = torch.Generator().manual_seed(length)
    shapes = ((2, 4, length, 6), (2, kv_heads, length, 6), (2, kv_heads, length, 5))
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    index, found = torch.arange(length), []
    for backend in ("plain", "sparse", "fused"):
        q, k, v = (leaf.clone().requires_grad_() for leaf in leaves)
        with attention_backend(backend):
            out = attend(q, k, v, Visible(index, index, pattern=pattern), Scoring(0.5))
        out.square().sum().backward()
        found.append([out.detach(), q.grad, k.grad, v.grad])
    for other in found[1:]:
        for actual, expected in zip(other, found[0], strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def scaled(q: Tensor, k: Tensor, head: int) -> float:
    return float(q @ k) / math.sqrt(len(q))


@every_pattern
def test_attention_under_a_pattern_is_its_definition(pattern: Sparsity, sees: Sees) -> None:
    x = random_stream(T, 12)
    layer: Any = layer_of(Attention(heads=4, kv_heads=2, sparsity=pattern, position=NoPE()), 12)
    q, k, v = project(layer, "q", x, 4), project(layer, "k", x, 2), project(layer, "v", x, 2)
    weights = maps(q, k, scaled)
    hidden = torch.tensor([[not (j <= i and sees(i, j)) for j in range(T)] for i in range(T)])
    weights = weights.masked_fill(hidden, 0.0)
    expected = write(layer, mix(weights / weights.sum(-1, keepdim=True), v))
    torch.testing.assert_close(run(layer, x), expected, rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *(t.numel() for t in tensors)])
        return out


LINEAR: dict[str, Sparsity] = {
    "longformer": Longformer(window=16, global_tokens=4),
    "bigbird": BigBird(block=8),
    "dilated": Dilated(window=16, dilation=4),
}


def work(pattern: Sparsity, length: int) -> tuple[int, float]:
    """Elements of the largest tensor and FLOPs of a forward and backward pass, one head of 8 features."""
    q, k, v = (torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3))
    index = torch.arange(length)
    # The kernels of the CPU are not counted, but the products that they stand for are the same.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, Largest() as largest:
        attend(q, k, v, Visible(index, index, pattern=pattern), Scoring(1.0)).sum().backward()
    return largest.elements, counter.get_total_flops()


@pytest.mark.parametrize("pattern", LINEAR.values(), ids=LINEAR)
def test_memory_and_work_grow_as_the_text_does(pattern: Sparsity) -> None:
    (space, flops), (twice, double) = work(pattern, 1024), work(pattern, 2048)
    assert twice <= 2.05 * space < 0.5 * 1024**2
    assert double <= 2.05 * flops
    # What is computed is not much more than what is seen: 3 times 4 d FLOPs a pair, in blocks.
    assert flops <= 3.2 * 3 * 4 * 8 * pattern.pairs(1024)


def test_strided_work_grows_as_the_power_of_three_halves() -> None:
    (space, flops), (more, work_of_more) = work(Strided(stride=32), 1024), work(Strided(stride=64), 4096)
    assert more <= 8.1 * space
    assert work_of_more <= 8.1 * flops
    assert flops <= 2.2 * 3 * 4 * 8 * Strided(stride=32).pairs(1024)


@pytest.mark.parametrize("pattern", ALL, ids=str)
@pytest.mark.parametrize("parts", [[1] * T, [9, 1, 1, 20, 6]], ids=["one by one", "in parts"])
def test_a_cache_gives_what_the_whole_text_gives(pattern: Sparsity, parts: list[int]) -> None:
    layer = layer_of(Attention(heads=4, kv_heads=1, sparsity=pattern), 16)
    x = random_stream(T, 16)
    cache, start = layer.new_cache(1, T, torch.float64), 0
    found: list[Tensor] = []
    with torch.no_grad():
        for piece in x.split(parts, dim=1):
            found.append(layer(piece, ForwardPass.of(piece, start), cache)[0])
            start += piece.shape[1]
    torch.testing.assert_close(torch.cat(found), run(layer, x), rtol=1e-4, atol=1e-5)


def test_a_dilated_window_caches_its_reach_and_others_all() -> None:
    def held(sparsity: Sparsity) -> int:
        return Attention(heads=1, sparsity=sparsity).resolve(4).cache_elements(1000) // 8

    assert held(Dilated(window=3, dilation=4)) == 9
    assert [held(each) for each in (Dilated(window=None), Strided(), Longformer(), BigBird())] == [1000] * 4


def test_a_pattern_counts_from_where_a_padded_row_begins() -> None:
    for pattern in (Longformer(window=3, global_tokens=2), BigBird(block=2), Strided(stride=4)):
        spec = zoo.load("small", d_model=16, **{"block.mixer.sparsity": pattern.model_dump()})
        model, tokens = random_model(spec), random_tokens(spec, 1, 24)
        padded = model(torch.cat((tokens[:, :5], tokens), dim=1), left_pad=torch.tensor([5]))[:, 5:]
        torch.testing.assert_close(padded, model(tokens), rtol=1e-4, atol=1e-4)


def test_a_pattern_changes_no_digest_where_there_is_none() -> None:
    assert "sparsity" not in zoo.load("small").dump()["block"]["mixer"]
    with pytest.raises(zoo.SpecError, match=r"block\.mixer\.window: sparsity longformer determines which keys"):
        zoo.load("small", **{"block.mixer": {"window": 8, "sparsity": "longformer"}})
