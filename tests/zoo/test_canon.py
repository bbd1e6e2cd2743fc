"""Canon layers and stochastic depth: what they compute, keep and cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import random_stream
from zoo.block_features.stochastic_depth import StochasticDepth
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass, LayerSite

T = 13
EVERYWHERE = {"block.canon": {"width": 4}, "block.mixer.conv": 4, "block.ffn.conv": 4}
"""A and C, B, D."""


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """torch's own convolution. x: (T, C), weight: (C, W) → (T, C)."""
    padded = F.pad(x.T[None], (weight.shape[1] - 1, 0))
    return F.conv1d(padded, weight[:, None], groups=len(weight))[0].T


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{"d_model": 16, "n_layers": 2, **edits})


def test_a_canon_layer_is_before_each_branch() -> None:
    """x + mix(n + conv(n)), n = norm(x); the same for the FFN, whose hidden features are convolved by themselves."""
    model: Any = random_model(small(**{**EVERYWHERE, "block.mixer.conv": None})).double()
    x = random_stream(T, 16)
    step, block = ForwardPass.of(x), model.blocks[0]
    with torch.no_grad():
        near = block.mixer_residual.norm_in(x)
        near = near + convolved(near[0], block.canon.mixer.conv.weight)
        middle = x + block.mixer(near, step)
        near = block.ffn_residual.norm_in(middle)
        near = near + convolved(near[0], block.canon.ffn.conv.weight)
        hidden = torch.cat((block.ffn.gate(near), block.ffn.up(near)), dim=-1)[0]
        gate, up = convolved(hidden, block.ffn.conv.weight).chunk(2, dim=-1)
        expected = middle + block.ffn.down(F.silu(gate) * up)
        torch.testing.assert_close(block(x, step), expected, rtol=1e-5, atol=1e-5)


def test_only_the_places_that_are_asked_for_have_one() -> None:
    model: Any = zoo.build(small(**{"block.canon": {"before": ["ffn"], "width": 3}}))
    assert {name for name, _ in model.named_parameters() if "canon" in name} == {
        f"blocks.{i}.canon.ffn.conv.weight" for i in range(2)
    }
    base, near = zoo.cost(small()), zoo.cost(model.spec)
    assert near.params - base.params == 2 * 3 * 16
    assert near.cache_bytes(5, 100) - base.cache_bytes(5, 100) == 4 * 5 * 2 * 2 * 16


@pytest.mark.parametrize("mixer", ["attention", "mamba2", "flash"])
def test_convolutions_keep_what_the_next_token_reaches_back_to(mixer: str) -> None:
    edits = {"block.canon": {}, "block.ffn.conv": 3, "block.mixer": {"kind": mixer}}
    spec = small(**edits)
    model, tokens = random_model(spec), random_tokens(spec, 2, T)
    cache = model.new_cache(2, T)
    assert cache.nbytes == zoo.cost(spec).cache_bytes(2, T)
    with torch.no_grad():
        parts = [model(chunk, cache) for chunk in tokens[:, :10].split([4, 1, 5], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens)[:, :10], rtol=1e-4, atol=1e-4)
        cache.reorder(torch.tensor([1, 1]))
        mixed = torch.cat((tokens[[1, 1], :10], tokens[:, 10:]), dim=1)
        torch.testing.assert_close(model(tokens[:, 10:], cache), model(mixed)[:, 10:], rtol=1e-4, atol=1e-4)


def test_convolutions_tell_the_order_of_tokens_without_positions() -> None:
    """One layer of attention without positions reads a bag of tokens."""
    without = small(n_layers=1, **{"block.mixer.position": "nope"})
    for spec, tells in ((without, False), (without.edit({"block.canon": {}}), True)):
        model, tokens = random_model(spec), random_tokens(spec, 1, 8)
        swapped = tokens[:, [0, 2, 1, 3, 4, 5, 6, 7]]
        assert torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1], atol=1e-5) is not tells


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.canon\.before: the block has no ffn"):
        small(**{"block.canon": {}, "block.ffn": "none"})
    with pytest.raises(zoo.SpecError, match=r"block\.canon\.before"):
        small(**{"block.canon": {"before": ["head"]}})


def test_rates_rise_linearly_to_the_last_layer() -> None:
    model: Any = zoo.build(small(n_layers=4, **{"block.stochastic_depth": 0.2}))
    assert [block.depth.rate for block in model.blocks] == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_rows_are_left_out_whole_and_the_mean_is_kept() -> None:
    layer = StochasticDepth(0.3, LayerSite(4, 1, 2)).train()
    torch.manual_seed(0)
    out = layer(torch.ones(20_000, 3, 4))
    rows = out.flatten(1)
    assert torch.equal(rows.amin(dim=1), rows.amax(dim=1))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (rows[:, 0] > 0).double().mean().item() == pytest.approx(0.7, abs=4 * (0.21 / 20_000) ** 0.5)


def test_stochastic_depth_changes_neither_inference_nor_a_digest_without_it() -> None:
    spec = small(**{"block.stochastic_depth": 0.5})
    plain, model = random_model(small()), random_model(spec)
    tokens = random_tokens(spec, 2, T)
    torch.testing.assert_close(model(tokens), plain(tokens), rtol=0, atol=0)
    assert not torch.equal(model.train()(tokens), plain(tokens))
    dumped = small().dump()["block"]
    assert {"stochastic_depth", "canon"} & dumped.keys() == set()
    assert "conv" not in dumped["ffn"]
