"""The first layer's input, added to what the other layers read, against a plain loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.conformance.checking import options_of
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

SMALL: dict[str, Any] = {"d_model": 24, "n_layers": 4, "block.mixer.heads": 4}


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{**SMALL, "first_stream": True, **edits})


def plainly(model: zoo.Decoder, tokens: Tensor) -> Tensor:
    """Token by token: no cache, one text at a time, the sum written out for every feature of the stream."""
    rows = []
    for text in tokens:
        entered = model.embedding_norm(model.embedding.weight[text] * model.spec.embedding_factor)[None]
        own, first = model.first_stream.own.tolist(), model.first_stream.first.tolist()
        x = entered.clone()
        for layer, block in enumerate(model.block_of_each):
            if layer:
                for t in range(len(text)):
                    x[0, t] = own[layer - 1] * x[0, t] + first[layer - 1] * entered[0, t]
            x = model.blocks[block](x, ForwardPass.of(text[None])).clone()
        rows.append(model.read_out(model.norm(x)))
    return torch.cat(rows)


CASES: dict[str, dict[str, Any]] = {
    "two layers": {"n_layers": 2},
    "normed embedding": {"embedding_norm": True},
    "post-norm": {"block.norm_placement": "post"},
    "shared weights": {"n_layers": 5, "sharing": {"blocks": 2}},
    "state": {"block.mixer": "gated_deltanet"},
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_every_layer_but_the_first_reads_a_sum_of_two_streams(case: str) -> None:
    spec = small(**CASES[case])
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, 7)
    expected = plainly(model, tokens)
    torch.testing.assert_close(model(tokens), expected)
    cache = model.new_cache(2, 7)
    pieces = [model(piece, cache) for piece in tokens.split([3, 1, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected)


@torch.no_grad()
def test_it_starts_as_the_model_without_it_and_learns() -> None:
    model, without = zoo.build(small(), seed=1).train(), zoo.build(small(first_stream=False), seed=1)
    tokens = random_tokens(model.spec, 2, 9)
    assert torch.equal(model(tokens), without(tokens))
    with torch.enable_grad():
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    for weights in (model.first_stream.own, model.first_stream.first):
        assert weights.grad is not None
        assert weights.grad.all()


def test_two_numbers_a_layer_and_nothing_else() -> None:
    ours, theirs = (zoo.cost(small(n_layers=5, first_stream=on), 64) for on in (True, False))
    assert ours.params - theirs.params == 8
    assert sum(p.numel() for p in zoo.build(ours.spec).parameters()) == ours.params
    assert ours.flops_per_token == theirs.flops_per_token
    assert ours.cache_bytes(2, 64) == theirs.cache_bytes(2, 64)


REFUSED = [
    ({"n_layers": 1}, "first_stream: a single layer reads nothing but the first stream"),
    ({"block.norm_placement": "ngpt"}, "first_stream: nGPT keeps the stream on the unit sphere"),
    ({"block.norm_placement": "attention_residuals"}, r"first_stream: .*\(attention_residuals\) needs"),
    ({"chunks": {}, "n_layers": 6}, "chunks: first_stream needs every token in the stream of every layer"),
    ({"sharing": {"recursion": {}}}, "sharing.recursion: first_stream needs every token"),
    ({"sharing": {"injection": True, "random_depth": {}}}, "first_stream needs layers that run exactly once per pass"),
]


@pytest.mark.parametrize(("edits", "reason"), REFUSED, ids=[reason[:24] for _, reason in REFUSED])
def test_it_is_refused_where_the_first_stream_is_none_of_every_layers(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(**edits)


@torch.no_grad()
def test_skips_are_added_before_the_sum() -> None:
    model = random_model(small(n_layers=2, unet_skips=True))
    tokens = random_tokens(model.spec, 1, 5)
    entered = model.embedding(tokens) * model.spec.embedding_factor
    left = model.blocks[0](entered, ForwardPass.of(tokens))
    read = model.first_stream.own * (left + model.skips.weights * left) + model.first_stream.first * entered
    expected = model.read_out(model.norm(model.blocks[1](read, ForwardPass.of(tokens))))
    torch.testing.assert_close(model(tokens), expected)


def test_the_check_of_a_feature_tries_it_alone_first() -> None:
    (option,) = options_of("first_stream")
    assert (str(option), option.edits) == ("first_stream: yes", {"first_stream": True})
    assert len(options_of("canon")) > 1 and not options_of("nothing of the kind")
