"""Native sparse attention against its paper's equations, arXiv:2502.11089, query by query."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests.zoo.slow import layer_of, random_stream, run
from zoo.conformance.combinations import random_model, random_tokens
from zoo.costs_decoding import decode_cost
from zoo.mixers._block_heads import Strides, count_of_chosen, sum_of_chosen
from zoo.mixers.nsa import NativeSparseAttention

D, T, H, WIDTH = 12, 29, 4, 6
SIZES = [
    {"compress": 4, "stride": 2, "block": 4, "blocks": 3, "window": 3, "kv_heads": 2},
    {"compress": 2, "stride": 2, "block": 6, "blocks": 4, "window": 7, "kv_heads": 4},
    {"compress": 6, "stride": 2, "block": 6, "blocks": 3, "window": 1, "kv_heads": 1},
]


def turned(x: Tensor, place: int) -> Tensor:
    """RoPE of one vector, of features half of it apart."""
    out, half = x.clone(), len(x) // 2
    for i in range(half):
        angle = place * 10000.0 ** (-i / half)
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out


def phi(module: Any, block: Tensor) -> Tensor:
    hidden = module.up.weight @ torch.cat([x + e for x, e in zip(block, module.places, strict=True)])
    out: Tensor = module.down.weight @ (hidden / 2 * (1 + torch.erf(hidden / math.sqrt(2))))
    return out


def attended(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> tuple[Tensor, list[float]]:
    """Attention of one query: the output, which is zero without keys, and the weights."""
    powers = [math.exp(float(q @ k) / math.sqrt(WIDTH)) for k in keys]
    weights = [power / sum(powers) for power in powers]
    return sum((p * v for p, v in zip(weights, values, strict=True)), torch.zeros(WIDTH).double()), weights


def chosen_blocks(weights: list[list[float]], own: int, spec: NativeSparseAttention) -> set[int]:
    """Equations 9 to 11: weights of the compressed blocks for each head of a group, and the query's own block. The
    paper counts blocks from 1."""
    per_block, overlap, scores = spec.block // spec.stride, spec.compress // spec.stride, {}
    for j in range(1, own + 2):
        places = [per_block * j - m - n for m in range(per_block) for n in range(overlap)]
        scores[j - 1] = sum(p[i - 1] for p in weights for i in places if 1 <= i <= len(p))
    always = {j for j in (0, own - 1, own) if j >= 0}
    others = sorted(scores.keys() - always, key=lambda j: (-scores[j], j))
    return always | set(others[: max(0, spec.blocks - len(always))])


@torch.no_grad()
def slow(layer: Any, spec: NativeSparseAttention, x: Tensor) -> Tensor:
    """x: (T, D) → (T, D)."""
    groups = spec.kv_heads or H
    q = (x @ layer.q.weight.T).view(T, H, WIDTH)
    k, v = ((x @ each.weight.T).view(T, 3, groups, WIDTH) for each in (layer.k, layer.v))
    keys = [[[turned(k[t, c, g], t) for t in range(T)] for g in range(groups)] for c in range(3)]
    out = []
    for t in range(T):
        gates = torch.sigmoid(layer.gates.weight @ x[t]).view(3, H)
        heads = []
        for g in range(groups):
            queries = [turned(q[t, h], t) for h in range(H) if h // (H // groups) == g]
            starts = range(0, t + 2 - spec.compress, spec.stride)
            spans = [slice(i, i + spec.compress) for i in starts]
            blocks = [phi(layer.compress_k, torch.stack(keys[0][g][span])) for span in spans]
            found = [
                attended(query, blocks, [phi(layer.compress_v, v[span, 0, g]) for span in spans]) for query in queries
            ]
            picked = chosen_blocks([weights for _, weights in found], t // spec.block, spec)
            seen = [s for s in range(t + 1) if s // spec.block in picked]
            near = range(max(0, t + 1 - spec.window), t + 1)
            for query, (compressed, _) in zip(queries, found, strict=True):
                chosen, _ = attended(query, [keys[1][g][s] for s in seen], [v[s, 1, g] for s in seen])
                local, _ = attended(query, [keys[2][g][s] for s in near], [v[s, 2, g] for s in near])
                c, s, w = gates[:, len(heads)]
                heads.append(c * compressed + s * chosen + w * local)
        out.append(layer.o.weight @ torch.cat(heads))
    return torch.stack(out)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_query_attends_to_compressed_blocks_chosen_blocks_and_its_neighbours(sizes: dict[str, Any]) -> None:
    spec = NativeSparseAttention(heads=H, head_dim=WIDTH, hidden=5, **sizes)
    layer, x = layer_of(spec, D), random_stream(T, D)
    torch.testing.assert_close(run(layer, x), slow(layer, spec, x[0]), rtol=1e-5, atol=1e-5)


def test_blocks_are_counted_as_they_are_seen() -> None:
    for length, stride in ((4, 2), (6, 2), (3, 3), (5, 1)):
        strides = Strides(length, stride)
        complete = [sum(i + length <= t for i in range(0, t, stride)) for t in range(40)]
        assert [strides.complete(t) for t in range(40)] == complete
        assert [strides.pairs(t) for t in range(40)] == [sum(complete[: t + 1]) for t in range(40)]
    for block, blocks in ((4, 3), (6, 4)):
        seen = [min(t, (blocks - 1) * block + (t - 1) % block + 1) for t in range(1, 60)]
        assert [count_of_chosen(t, block, blocks) for t in range(1, 60)] == seen
        assert [sum_of_chosen(t, block, blocks) for t in range(1, 60)] == [sum(seen[:t]) for t in range(1, 60)]


def small(**mixer: Any) -> zoo.ModelSpec:
    part = {"kind": "nsa", "hidden": 7, **SIZES[0], **mixer}
    return zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **{"block.mixer": part})


def test_decoding_reads_a_share_of_the_cache() -> None:
    """Each further token adds a compressed key every `stride` tokens, and no other: 4 H d FLOPs."""
    spec = small()
    one, other = (decode_cost(spec, 1, context).flops for context in (401, 405))
    assert other - one == 2 * 2 * 4 * 24


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_tokens_that_are_taken_back_leave_no_block(kept: int) -> None:
    spec = small(window=7)
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, T)
    other = random_tokens(spec, 2, 4, seed=5)
    cache = model.new_cache(2, T, torch.float64)
    with torch.no_grad():
        model(tokens[:, :13], cache)
        undo = cache.mark(4)
        model(torch.cat((tokens[:, 13 : 13 + kept], other[:, kept:]), dim=1), cache)
        assert undo(kept) == 0
        found = torch.cat([model(part, cache) for part in tokens[:, 13 + kept :].split(3, dim=1)], dim=1)
        torch.testing.assert_close(found, model(tokens)[:, 13 + kept :])


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"stride": 3}, r"compress: must be a multiple of stride \(3\), not 4"),
        ({"block": 5}, r"block: must be a multiple of stride \(2\), not 5"),
        ({"block": 2}, r"block: must be at least compress \(4\), not 2"),
        ({"blocks": 2}, "blocks: "),
        (
            {"position": "alibi"},
            "position: alibi cannot add to nsa's scores of compressed blocks, which have no position",
        ),
        ({"head_dim": 5}, "position: "),
        ({"kv_heads": 3}, "kv_heads: 3 kv heads do not divide 4 heads"),
    ],
    ids=str,
)
def test_what_it_cannot_be_is_refused(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(**mixer)
