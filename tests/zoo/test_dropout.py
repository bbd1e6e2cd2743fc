"""Dropout of attention weights and of embeddings: the fraction dropped, the scale of the rest, nothing when
evaluating."""

from __future__ import annotations

import pytest
import torch

import zoo
from zoo.attend import attend
from zoo.attending.scoring import Scoring
from zoo.attending.visible import Visible
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.matrix import SMALL
from zoo.site import ForwardPass

P = 0.3


@pytest.mark.parametrize(("backend", "window"), [("plain", None), ("fused", None), ("fused", 9), ("band", 9)])
def test_attention_weights_are_dropped(backend: str, window: int | None) -> None:
    torch.manual_seed(0)
    length = 36
    # Equal scores, and values that tell which key they came from: the output is the row of weights.
    q, v = torch.zeros(40, 1, length, 8), torch.eye(length).expand(40, 1, length, length)
    place = torch.arange(length)
    visible = Visible(place, place, window)
    with zoo.attention_backend(backend):
        whole, dropped = (attend(q, q, v, visible, Scoring(1.0, dropout=p)) for p in (0.0, P))
    seen = visible.mask().expand_as(whole)
    assert (dropped[seen] == 0).float().mean().item() == pytest.approx(P, abs=0.02)
    kept = seen & (dropped != 0)
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - P))


def test_dropout_is_for_training_only() -> None:
    plain = zoo.load("small", **SMALL)
    model = random_model(plain.edit({"block.mixer.dropout": P, "embedding_dropout": P, "block.dropout": P}))
    tokens = random_tokens(plain, 2, 9)
    torch.testing.assert_close(model(tokens), random_model(plain)(tokens), rtol=0, atol=0)
    assert not torch.equal(model.train()(tokens), model.eval()(tokens))


def test_embeddings_are_dropped() -> None:
    torch.manual_seed(0)
    spec = zoo.load("small", **SMALL, embedding_dropout=P)
    model, tokens = random_model(spec), random_tokens(spec, 40, 30)
    whole, dropped = model.embed(tokens, ForwardPass.of(tokens)), model.train().embed(tokens, ForwardPass.of(tokens))
    assert (dropped == 0).float().mean().item() == pytest.approx(P, abs=0.02)
    torch.testing.assert_close(dropped[dropped != 0], whole[dropped != 0] / (1 - P))
