"""Mixture of block attention against its paper's equations, arXiv:2502.13189, query by query."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests.zoo.slow import layer_of, random_stream, run
from tests.zoo.test_nsa import turned
from zoo.conformance.combinations import random_model, random_tokens
from zoo.costs_decoding import decode_cost
from zoo.decode.compiled import compiled_step
from zoo.mixers.moba import MixtureOfBlockAttention
from zoo.positions.nope import NoPE
from zoo.site import ForwardPass

D, T, H, WIDTH = 12, 29, 4, 6
SIZES = [
    {"block": 4, "blocks": 2, "kv_heads": 2},
    {"block": 3, "blocks": 4, "kv_heads": 4},
    {"block": 5, "blocks": 1, "kv_heads": 1},
]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)


@torch.no_grad()
def slow(layer: Any, x: Tensor) -> Tensor:
    """x: (T, D) → (T, D), equations 2 to 6: gates of blocks, then the softmax over the tokens of open ones."""
    spec = layer.spec
    groups = spec.kv_heads
    q = (x @ layer.q.weight.T).view(T, H, WIDTH)
    k, v = ((x @ each.weight.T).view(T, groups, WIDTH) for each in (layer.k, layer.v))
    out = []
    for t in range(T):
        heads, own = [], t // spec.block
        for h in range(H):
            g = h // (H // groups)
            query = turned(q[t, h], t)
            keys = [turned(k[s, g], s) for s in range(t + 1)]
            scores = {}
            for i in range(own):  # blocks that end before the query's own begins
                members = keys[i * spec.block : (i + 1) * spec.block]
                scores[i] = float(query @ (sum(members) / len(members)))
            best = sorted(scores, key=lambda i: -scores[i])[: spec.blocks - 1]
            seen = [s for s in range(t + 1) if s // spec.block in {own, *best}]
            powers = [math.exp(float(query @ keys[s]) / math.sqrt(WIDTH)) for s in seen]
            heads.append(sum(p / sum(powers) * v[s, g] for p, s in zip(powers, seen, strict=True)))
        out.append(layer.o.weight @ torch.cat(heads))
    return torch.stack(out)


@every_size
def test_a_query_attends_to_its_own_block_and_those_of_the_largest_means(sizes: dict[str, Any]) -> None:
    layer, x = layer_of(MixtureOfBlockAttention(heads=H, head_dim=WIDTH, **sizes), D), random_stream(T, D)
    torch.testing.assert_close(run(layer, x), slow(layer, x[0]), rtol=1e-5, atol=1e-5)


def test_with_enough_blocks_it_is_full_attention() -> None:
    full = zoo.load("small", d_model=24, n_layers=2, vocab_size=31)
    moba = full.edit({"block.mixer": {"kind": "moba", "heads": full.block.mixer.heads, "block": 4, "blocks": 99}})
    models = [random_model(spec) for spec in (full, moba)]
    models[1].load_state_dict(models[0].state_dict())
    tokens = random_tokens(full, 2, 23)
    torch.testing.assert_close(models[1](tokens), models[0](tokens))


def small(**mixer: Any) -> zoo.ModelSpec:
    part = {"kind": "moba", **SIZES[0], **mixer}
    return zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **{"block.mixer": part})


def test_nothing_flows_back_through_the_choice() -> None:
    """A finite difference, with which no query changes its mind, is the gradient."""
    layer = layer_of(MixtureOfBlockAttention(heads=1, head_dim=2, block=2, blocks=2, position=NoPE()), 2)
    x = random_stream(7, 2).requires_grad_()
    layer(x, ForwardPass.of(torch.zeros(1, 7))).square().sum().backward()
    step = 1e-6
    for place in ((0, 0, 0), (0, 2, 1), (0, 6, 1)):
        moved = [x.detach().clone() for _ in range(2)]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (run(layer, each).square().sum() for each in moved)
        assert x.grad is not None
        assert x.grad[place].item() == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-4)


def test_a_decoded_token_reads_a_share_of_the_cache() -> None:
    """A block more costs its score, 2 H d FLOPs, and no keys."""
    spec = small()
    one, other = (decode_cost(spec, 1, context).flops for context in (401, 405))
    assert other - one == 2 * 2 * 24


@pytest.mark.parametrize("left_pad", [None, [0, 3]])
def test_a_compiled_step_chooses_the_same(left_pad: list[int] | None) -> None:
    model = random_model(small()).double()
    tokens = random_tokens(model.spec, 2, 20)
    pads = None if left_pad is None else torch.tensor(left_pad)
    torch.compiler.reset()
    step, cache = compiled_step(model, backend="eager"), model.new_cache(2, 24, torch.float64)
    with torch.no_grad():
        model(tokens[:, :13], cache, left_pad=pads)
        found = torch.stack([step(tokens[:, t : t + 1], cache) for t in range(13, 20)], dim=1)
        torch.testing.assert_close(found, model(tokens, left_pad=pads)[:, 13:])


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"blocks": 0}, "blocks: "),
        ({"position": "t5"}, "position: t5 cannot add to moba's scores of block means, which have no position"),
        ({"head_dim": 5}, "position: "),
        ({"kv_heads": 3}, "kv_heads: 3 kv heads do not divide 4 heads"),
    ],
    ids=str,
)
def test_what_it_cannot_be_is_refused(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(**mixer)
