"""A learned factor on the stream after each layer, against a plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

SMALL: dict[str, Any] = {"d_model": 24, "n_layers": 4, "block.mixer.heads": 4}


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{**SMALL, "layer_gains": True, **edits})


CASES: dict[str, dict[str, Any]] = {
    "one layer": {"n_layers": 1},
    "post-norm": {"block.norm_placement": "post"},
    "shared weights": {"n_layers": 5, "sharing": {"blocks": 2}},
    "per-layer embeddings": {"per_layer_embeddings": {"features": 5}},
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_every_layer_leaves_a_scaled_stream(case: str) -> None:
    spec = small(**CASES[case])
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, 7)
    step = ForwardPass.of(tokens)
    x = embedded = model.embedding_norm(model.embedding(tokens) * spec.embedding_factor)
    for layer, block in enumerate(model.block_of_each):
        x = model.blocks[block](x, step)
        if spec.per_layer_embeddings is not None:
            inputs = model.per_layer(tokens, embedded)
            x = x + model.per_layer.layers[layer](x, inputs[..., layer, :])
        x = x * model.layer_gains.factors[layer].item()
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(x)))


@torch.no_grad()
def test_it_starts_as_the_model_without_it() -> None:
    tokens = random_tokens(small(), 2, 9)
    assert torch.equal(zoo.build(small(), seed=1)(tokens), zoo.build(small(layer_gains=False), seed=1)(tokens))


def test_one_number_a_layer() -> None:
    ours, theirs = (zoo.cost(small(layer_gains=on), 64) for on in (True, False))
    assert ours.params - theirs.params == 4
    assert ours.flops_per_token == theirs.flops_per_token
