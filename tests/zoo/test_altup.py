"""The parts of Gemma 3n by themselves, against plain versions. Together they are compared with transformers, in
`tests/zoo/hf`."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import pytest
import scipy.stats
import torch
from torch import Tensor

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.ffns._activations import sparse
from zoo.site import ForwardPass

SMALL = {"d_model": 24, "n_layers": 3, "vocab_size": 61, "block.mixer.heads": 4}


def rms(x: Tensor) -> Tensor:
    return x.pow(2).mean(-1, keepdim=True).sqrt()


@torch.no_grad()
def test_each_layer_predicts_streams_runs_on_one_and_corrects_all() -> None:
    spec = zoo.load("small", **SMALL, altup={"streams": 3, "active": 1}, sharing={"blocks": 2})
    model, tokens = random_model(spec), random_tokens(spec, 2, 7)
    altup, e = model.altup, model.embed(tokens, ForwardPass.of(tokens))
    streams = [e, *(enter(e) for enter in altup.enter)]
    streams = [x * rms(e) / rms(x) for x in streams]
    for number in (0, 1, 0):
        layer = altup.layers[number]
        asked = layer.predict.weight @ torch.tanh(layer.router(layer.norm(streams[1]) / 24))[..., None]
        predicted = [streams[i] + sum(asked[..., 3 * i + j, :] * streams[j] for j in range(3)) for i in range(3)]
        out = model.blocks[number](predicted[1], ForwardPass.of(tokens))
        asked = layer.correct.weight @ torch.tanh(layer.router(layer.norm(out) / 24))[..., None]
        streams = [predicted[i] + (1 + asked[..., i, :]) * (out - predicted[1]) for i in range(3)]
    left = [leave(x) for leave, x in zip(altup.leave, streams[1:], strict=True)]
    mean = (streams[0] + sum(x * rms(streams[0]) / rms(x) for x in left)) / 3
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(mean)), rtol=1e-4, atol=1e-5)


def test_coefficients_are_bounded_while_training_alone() -> None:
    spec = zoo.load("small", **SMALL, altup={"streams": 2, "clip": 0.5})
    model, tokens = random_model(spec), random_tokens(spec, 1, 5)
    bounded = random_model(spec)
    with torch.no_grad():
        for layer in model.altup.layers:
            layer.predict.weight.mul_(10)
        for ours, theirs in zip(bounded.altup.layers, model.altup.layers, strict=True):
            for name in ("predict", "correct"):
                getattr(ours, name).weight.copy_(getattr(theirs, name).weight.clamp(-0.5, 0.5))
        assert not torch.allclose(model(tokens), bounded(tokens))
        torch.testing.assert_close(model.train()(tokens), bounded(tokens))


@torch.no_grad()
def test_every_layer_adds_what_it_makes_of_its_own_embedding() -> None:
    edits = {"features": 5, "activation": "silu", "vocabulary": 40, "scaled": True}
    spec = zoo.load("small", **SMALL, per_layer_embeddings=edits)
    model, tokens = random_model(spec), random_tokens(spec, 2, 7)
    assert (tokens >= 40).any()
    inputs, x = model.per_layer, model.embed(tokens, ForwardPass.of(tokens))
    e = x
    for i, block in enumerate(model.blocks):
        part, own = slice(5 * i, 5 * i + 5), inputs.layers[i]
        rows = inputs.table.weight[torch.where(tokens < 40, tokens, 0)][..., part]
        projected = inputs.norm((e @ inputs.project.weight[part].T) / math.sqrt(24))
        embedded = (projected + math.sqrt(5) * rows) / math.sqrt(2)
        x = block(x, ForwardPass.of(tokens))
        hidden = torch.nn.functional.silu(own.gate(x * own.gain))
        x = x + own.norm(own.out(hidden * embedded))
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "output"])
@torch.no_grad()
def test_laurel_stands_beside_the_mixers_residual(placement: str) -> None:
    edits = {"block.laurel": {"rank": 3}, "block.norm_placement": placement}
    model = random_model(zoo.load("small", **SMALL | {"n_layers": 1}, **edits))
    block, x = model.blocks[0], torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))
    h, step = block.mixer_residual.norm_in(x), ForwardPass.of(x)
    learned = block.laurel.norm(h @ block.laurel.down.weight.T @ block.laurel.up.weight.T)
    y = (x + block.mixer_residual.norm_out(block.mixer(h, step)) + h + learned) / math.sqrt(2)
    expected = y + block.ffn_residual.norm_out(block.ffn(block.ffn_residual.norm_in(y), step))
    torch.testing.assert_close(block(x, step), expected)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_threshold_zeroes_its_share_of_normal_features(share: float) -> None:
    z = 3 + 2 * torch.randn(4, 20_000, generator=torch.Generator().manual_seed(0))
    found = sparse(z, NormalDist().inv_cdf(share))
    assert (found == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    rows = z.double().numpy()
    threshold = rows.mean(-1, keepdims=True) + scipy.stats.norm.ppf(share) * rows.std(-1, keepdims=True)
    torch.testing.assert_close(found.double(), torch.from_numpy((rows - threshold).clip(min=0)), rtol=1e-4, atol=1e-5)


REFUSED = [
    ({"altup": {"streams": 2, "active": 2}}, "altup.active: must be below streams = 2, not 2"),
    (
        {"altup": {}, "block.norm_placement": "hyper_connections"},
        "norm_placement: altup needs layers that write a stream of",
    ),
    ({"block.laurel": {}, "block.norm_placement": "post"}, "block.laurel: needs an additive residual .* not post"),
    ({"block.laurel": {}, "block.topology": "parallel"}, "block.laurel: .* topology serial"),
]


@pytest.mark.parametrize(("edits", "reason"), REFUSED, ids=[reason[:24] for _, reason in REFUSED])
def test_what_they_cannot_stand_beside_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **SMALL, **edits)
