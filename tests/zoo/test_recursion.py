"""Mixture-of-Recursions against its equations, arXiv:2507.10524 §2.2, token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

LENGTH, D, TURNS = 11, 16, 3
LOOP = {"blocks": 2, "prelude": 1, "coda": 1, "recursion": {"alpha": 0.7, "loss": 0.5}}
COUNTS = [11, 7, 3]
"""⌊3/3 · 11⌋, ⌊2/3 · 11⌋, ⌊1/3 · 11⌋."""


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{"d_model": D, "n_layers": 2 + 2 * TURNS, "vocab_size": 31, "sharing": LOOP, **edits})


def by_hand(model: Any, tokens: Tensor, training: bool) -> tuple[Tensor, list[list[int]], float]:
    """One row: what comes out (D, T), the tokens of each turn, and the mean cross-entropy of each turn's router,
    summed. Blocks 1 and 2 are the loop's, at the places that tokens have in the text."""
    step = ForwardPass.of(tokens[None])
    x = model.blocks[0](model.embed(tokens[None], step), step)[0]
    left, taken, entropy = list(range(len(tokens))), [], 0.0
    for turn, count in enumerate(COUNTS):
        logits = {t: float(x[t] @ model.recursion.routers[turn].weight[0]) for t in left}
        if training:
            chosen = sorted(sorted(left, key=lambda t: -logits[t])[:count])
        else:
            chosen = [t for t in left if turn == 0 or logits[t] > 0]
        for t in left:
            p = 1 / (1 + math.exp(-logits[t]))
            entropy -= math.log(p if t in chosen else 1 - p) / len(left)
        if chosen:
            own = ForwardPass(torch.arange(len(chosen)), places=torch.tensor([chosen]))
            made = model.blocks[2](model.blocks[1](x[chosen][None], own), own)[0]
            x = x.clone()
            for n, t in enumerate(chosen):
                x[t] = x[t] + 0.7 / (1 + math.exp(-logits[t])) * made[n]
        left = chosen
        taken.append(chosen)
    return model.read_out(model.norm(model.blocks[3](x[None], step)))[0], taken, entropy


@torch.no_grad()
@pytest.mark.parametrize("training", [True, False])
def test_each_turn_runs_on_tokens_that_the_one_before_it_left(training: bool) -> None:
    model, tokens = random_model(small()).double().train(training), random_tokens(small(), 4, LENGTH)
    rows, taken, _ = zip(*(by_hand(model, row, training) for row in tokens), strict=True)
    torch.testing.assert_close(model(tokens), torch.stack(rows))
    sizes = {tuple(map(len, turns)) for turns in taken}
    assert sizes == {tuple(COUNTS)} if training else len(sizes) > 1 and min(map(min, sizes)) < 7


@torch.no_grad()
def test_routers_learn_which_tokens_are_chosen() -> None:
    model, tokens = random_model(small()).train(), random_tokens(small(), 2, LENGTH + 1)
    objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:])
    entropies = [by_hand(model, row, training=True)[2] for row in tokens[:, :-1]]
    assert (objective - nats).item() == pytest.approx(0.5 * sum(entropies) / 2, rel=1e-4)


def test_every_router_and_block_has_a_gradient() -> None:
    spec = small(**{"sharing.recursion.loss": 0.0})
    model, tokens = random_model(spec).train(), random_tokens(spec, 2, LENGTH)
    model(tokens).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@torch.no_grad()
def test_the_choice_of_training_sees_the_future_and_that_of_evaluation_does_not() -> None:
    model, tokens = random_model(small()).double(), random_tokens(small(), 1, LENGTH)
    others = tokens.repeat(31, 1)
    others[:, -1] = torch.arange(31)
    for training in (True, False):
        logits = model.train(training)(others)[:, :-1]
        assert ((logits - logits[:1]).abs().max() > 1e-3) == training


@torch.no_grad()
def test_padded_rows_in_pieces_from_a_cache_are_what_they_are_alone() -> None:
    model, tokens = random_model(small()).double(), random_tokens(small(), 3, LENGTH)
    pads = torch.tensor([0, 2, 5])
    cache = model.new_cache(3, LENGTH, torch.float64)
    pieces = [model(tokens[:, :6], cache, left_pad=pads), *(model(tokens[:, t : t + 1], cache) for t in range(6, 8))]
    undo = cache.mark(2)
    model(random_tokens(small(), 3, 2, seed=7), cache)
    assert undo(1) == 1
    found = torch.cat([*pieces, model(tokens[:, 8:], cache)], dim=1)
    for row, pad in enumerate(pads.tolist()):
        torch.testing.assert_close(found[row, pad:], model(tokens[row : row + 1, pad:])[0])


def test_costs_are_those_of_each_turns_share_and_of_what_routers_read() -> None:
    spec = small()
    routed, plain = zoo.cost(spec, LENGTH), zoo.cost(small(**{"sharing.recursion": None}), LENGTH)
    layer = spec.layers[0]
    whole = layer.cost(D, LENGTH).flops
    saved = sum(2 * (whole - count / LENGTH * layer.cost(D, count).flops) for count in COUNTS)
    routers = 2 * D * (11 + 11 + 7) / LENGTH
    assert plain.flops_per_token_forward - routed.flops_per_token_forward == pytest.approx(saved - routers)
    assert routed.params - plain.params == TURNS * D


@pytest.mark.parametrize(
    ("edits", "path", "reason"),
    [
        ({"visible": "all"}, "visible", "sharing.recursion needs a causal model without an encoder"),
        ({"block.norm_placement": "mhc"}, "block.norm_placement", "sharing.recursion needs a single stream"),
        ({"mtp": {}}, "sharing.recursion", "mtp needs every token in every block"),
        ({"unet_skips": True}, "sharing.recursion", "unet_skips needs every token in the stream of every layer"),
        ({"block.depth_routing": {}}, "sharing.recursion", "block.depth_routing needs every token in every block"),
        (
            {"block.mixer.position": "alibi"},
            "sharing.recursion",
            r"block\.mixer\.position \(alibi\) needs positions given",
        ),
        ({"block.ffn": "topk_moe"}, "sharing.recursion", r"block\.ffn \(topk_moe\) needs rows without padding"),
        ({"sharing.injection": True}, "sharing.recursion", "cannot be combined with injection"),
        (
            {"sharing.random_depth": {}},
            "sharing.random_depth",
            "cannot be combined with recursion, which has one router per turn",
        ),
        ({"sharing.order": "sequence"}, "sharing.order", "must be cycle with recursion"),
        ({"n_layers": 4}, "sharing.blocks", "2 layers are a single turn: recursion needs at least two turns"),
        ({"n_layers": 7}, "sharing.blocks", "5 layers are not a multiple of blocks = 2, as recursion needs"),
    ],
    ids=str,
)
def test_what_cannot_be_routed_is_refused(edits: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=rf"^{path}: {reason}"):
        small(**edits)


def test_pages_are_refused() -> None:
    with pytest.raises(zoo.UnsupportedError, match="paged does not support layers that run on only some of the tokens"):
        zoo.build(small()).new_cache(1, 8, kind="paged")
