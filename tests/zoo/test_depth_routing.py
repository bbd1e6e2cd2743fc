"""Mixture-of-Depths against its equations, arXiv:2404.02258, row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

LENGTH, D = 11, 16
ROUTED = {"blocks": {"routed": {"depth_routing": {"capacity": 0.3, "loss": 0.5}}}, "pattern": ["block", "routed"]}


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{"d_model": D, "n_layers": 2, "vocab_size": 31, **ROUTED, **edits})


def by_hand(model: Any, tokens: Tensor, chosen: list[list[int]]) -> Tensor:
    """Equation 1: the second layer's block runs on the chosen tokens of each row, at their places in the text."""
    step = ForwardPass.of(tokens)
    x = model.blocks[0](model.embed(tokens, step), step)
    routed, rows = model.blocks[1], []
    for row, places in zip(x, chosen, strict=True):
        out, read = row.clone(), row[places][None]
        own = ForwardPass(torch.arange(len(places)), places=torch.tensor([places]))
        made = routed.ffn_residual(
            routed.mixer_residual(read, lambda h, own=own: routed.mixer(h, own)), lambda h, own=own: routed.ffn(h, own)
        )[0]
        for n, t in enumerate(places):
            out[t] = row[t] + float(row[t] @ routed.router.weigh.weight[0]) * (made[n] - row[t])
        rows.append(out)
    return model.read_out(model.norm(torch.stack(rows)))


def weights_of(model: Any, tokens: Tensor) -> Tensor:
    step = ForwardPass.of(tokens)
    return model.blocks[1].router.weigh(model.blocks[0](model.embed(tokens, step), step))[..., 0]


@torch.no_grad()
def test_training_runs_the_block_on_the_tokens_with_the_largest_weights() -> None:
    model, tokens = random_model(small()).train(), random_tokens(small(), 3, LENGTH)
    weights = weights_of(model, tokens)
    best = [sorted(sorted(range(LENGTH), key=lambda t: -row[t])[:4]) for row in weights.tolist()]  # ⌈0.3 · 11⌉
    torch.testing.assert_close(model(tokens), by_hand(model, tokens, best), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_otherwise_it_runs_on_the_tokens_that_are_likely_to_be_chosen() -> None:
    model, tokens = random_model(small()), random_tokens(small(), 3, LENGTH)
    likely = [[t for t in range(LENGTH) if row[t] > 0] for row in weights_of(model, tokens).tolist()]
    assert len({len(places) for places in likely}) > 1
    torch.testing.assert_close(model(tokens), by_hand(model, tokens, likely), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_weights_learn_which_tokens_are_chosen() -> None:
    model, tokens = random_model(small()).train(), random_tokens(small(), 2, LENGTH + 1)
    tokens, targets = tokens[:, :-1], tokens[:, 1:]
    objective, nats = model.loss(tokens, targets)
    total = 0.0
    for row in weights_of(model, tokens).tolist():
        best = sorted(range(LENGTH), key=lambda t: -row[t])[:4]
        for t, weight in enumerate(row):
            p = 1 / (1 + math.exp(-weight))
            total -= math.log(p if t in best else 1 - p)
    assert (objective - nats).item() == pytest.approx(0.5 * total / (2 * LENGTH), rel=1e-4)


@torch.no_grad()
def test_the_choice_of_training_sees_the_future_and_that_of_evaluation_does_not() -> None:
    model, tokens = random_model(small()).double(), random_tokens(small(), 1, LENGTH)
    others = tokens.repeat(31, 1)
    others[:, -1] = torch.arange(31)
    moved = [(model.train(training)(others) - model(tokens))[:, :-1].abs().max().item() for training in (True, False)]
    assert moved[0] > 1e-3
    assert moved[1] < 1e-12


def test_costs_are_those_of_the_share_and_of_the_router() -> None:
    routed, plain = zoo.cost(small(), 40), zoo.cost(small(pattern=["block"]), 40)
    layer = small().layers[1]
    saved = layer.cost(D, 40).flops - 0.3 * layer.cost(D, 12).flops
    assert plain.flops_per_token_forward - routed.flops_per_token_forward == pytest.approx(saved - 2 * D)
    assert routed.params - plain.params == D


@torch.no_grad()
def test_what_is_taken_back_is_chosen_anew() -> None:
    model, tokens = random_model(small()).double(), random_tokens(small(), 2, LENGTH)
    cache = model.new_cache(2, LENGTH, torch.float64)
    model(tokens[:, :5], cache)
    undo = cache.mark(3)
    model(random_tokens(small(), 2, 3, seed=7), cache)
    assert undo(1) == 1
    torch.testing.assert_close(model(tokens[:, 5:], cache), model(tokens)[:, 5:])


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"visible": "all"}, r"^visible: blocks\.routed\.depth_routing needs a causal model without an encoder"),
        ({"block.norm_placement": "mhc"}, r"norm_placement: blocks\.routed\.depth_routing needs a single stream"),
        ({"mtp": {}}, "depth_routing: mtp needs every token in every block"),
        (
            {"blocks.routed.mixer.reuse_kv": True},
            r"depth_routing: blocks\.routed\.mixer\.reuse_kv needs keys or values of other layers",
        ),
        (
            {"block.mixer.position": "alibi"},
            r"depth_routing: blocks\.routed\.mixer\.position \(alibi\) needs positions given",
        ),
        ({"block.mixer": "flash"}, r"depth_routing: blocks\.routed\.mixer \(flash\) needs contiguous positions"),
        ({"block.ffn": "topk_moe"}, r"depth_routing: blocks\.routed\.ffn \(topk_moe\) needs rows without padding"),
    ],
    ids=str,
)
def test_what_cannot_be_routed_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(**edits)


def test_pages_are_refused() -> None:
    with pytest.raises(zoo.UnsupportedError, match="paged does not support layers that run on only some of the tokens"):
        zoo.build(small()).new_cache(1, 8, kind="paged")
