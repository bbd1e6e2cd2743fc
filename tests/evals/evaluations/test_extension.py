"""Trained weights under a scaling of RoPE: against a model that is built with it, and what cannot be stretched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import zoo
from evals.evaluations.positions import PositionsSpec, extended, loss_by_position
from evals.reading.windows import Text
from zoo.errors import SpecError
from zoo.model import Decoder

TEXT = Text(np.random.default_rng(0).integers(0, 64, 700), np.ones(700, dtype=np.uint32))
SMALL: dict[str, Any] = {"d_model": 32, "n_layers": 2, "vocab_size": 64, "tie_embeddings": True}


def built(**edits: Any) -> Decoder:
    return zoo.build(zoo.load("small", **SMALL, **edits), seed=1).eval()


@pytest.mark.parametrize("scaling", ["linear", "ntk", "yarn"])
def test_it_is_the_model_built_with_the_scaling(scaling: str) -> None:
    settings = {"kind": scaling, "factor": 4.0} | ({"original_length": 16} if scaling == "yarn" else {})
    tokens = torch.randint(64, (2, 40), generator=torch.Generator().manual_seed(0))
    plain, expected = built(), built(**{"block.mixer.position.scaling": settings})
    with torch.no_grad():
        found = extended(plain, scaling, 4, 16)(tokens)
        assert torch.equal(found, expected(tokens))
        assert not torch.equal(found, plain(tokens))


def test_every_kind_of_layer_is_stretched_and_one_without_rotation_is_left() -> None:
    edits = {"blocks": {"local": {"mixer.window": 8}, "nope": {"mixer.position": "nope"}}}
    model = built(pattern=["local", "nope"], **edits)
    first, second = extended(model, "ntk", 2, 16).spec.layers
    assert (first.mixer.position.scaling.factor, first.mixer.window) == (2.0, 8)
    assert second.mixer.position.kind == "nope"


def test_what_has_no_rotation_says_so() -> None:
    with pytest.raises(SpecError, match="no layer has rotary positions"):
        extended(built(**{"block.mixer.position": "alibi"}), "yarn", 2, 16)


def test_longer_windows_are_read_once_more() -> None:
    """A window of 4 times the context under a factor of 4: the mean loss by a plain loop over the windows."""
    model, spec = built(), PositionsSpec(multiples=(1, 4), tokens=256, extensions=("ntk", "longrope"))
    found = loss_by_position(model, TEXT, spec, context=16, batch=4, seed=0)
    by_extension: dict[Any, list[Any]] = {}
    for row in found.rows:
        by_extension.setdefault(row["extension"], []).append(row)
    assert {row["multiple"] for row in by_extension[None]} == {1, 4}
    assert {row["multiple"] for row in by_extension["ntk"]} == {4}
    (longrope,) = by_extension["longrope"]
    assert longrope["reason"] == "block.mixer.position.scaling.short_factor: is missing"
    stretched, nats = built(**{"block.mixer.position.scaling": {"kind": "ntk", "factor": 4.0}}), []
    for sample in found.items:
        start = int(sample.doc_hash.split()[1].rstrip(","))
        tokens = torch.from_numpy(TEXT.tokens[start : start + 65])
        with torch.no_grad():
            log_p = stretched(tokens[None, :-1])[0].log_softmax(-1)
        nats.append(-log_p[torch.arange(64), tokens[1:]])
    buckets = by_extension["ntk"]
    mean = sum(row["nats_per_token"] * row["tokens"] for row in buckets) / sum(row["tokens"] for row in buckets)
    assert mean == pytest.approx(float(torch.stack(nats).mean()), rel=1e-4)
    assert found.scores["positions"]["loss_4x_ntk"].value == pytest.approx(
        float(torch.stack(nats)[:, -16:].mean()), rel=1e-4
    )
    assert {"loss_4x", "extrapolation_gap_4x", "extrapolation_gap_4x_ntk"} < set(found.scores["positions"])


def test_requests_without_extensions_are_as_they_were() -> None:
    assert "extensions" not in PositionsSpec().model_dump(mode="json")
    with pytest.raises(ValidationError, match=r"unknown scaling 'yarm' \(did you mean 'yarn'\?\)"):
        PositionsSpec(extensions=("yarm",))
