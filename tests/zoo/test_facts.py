"""Facts about settings are declared at their fields, and nobody keeps a list beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
import torch
from pydantic import PositiveInt

import zoo
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.settings.axis import Spec
from zoo.settings.field_tags import (
    Dropout,
    Fact,
    MaxInTests,
    ValuesInTests,
    facts_of,
    names_with,
    said_of,
    what_computes,
)


class Part(Spec):
    heads: Annotated[PositiveInt, Fact.SIZE, MaxInTests(4)] = 8
    rate: Annotated[float | None, Fact.TRAINING_UNLESS_NULL] = 0.1
    dropout: Dropout = 0.0


class Special(Part):
    heads: PositiveInt = 2
    inside: Part = Part()


def test_facts_are_read_at_the_field_and_kept_by_subclasses() -> None:
    assert facts_of(Special, "heads") == {Fact.SIZE, MaxInTests(4)}
    assert names_with(Special, Fact.SIZE, Fact.TRAINING) == ("heads", "dropout")
    assert said_of(Special, "dropout", ValuesInTests).values == (0.1,)  # type: ignore[union-attr]
    assert said_of(Special, "heads", ValuesInTests) is None


def test_what_computes_leaves_out_what_is_of_training() -> None:
    assert what_computes(Special()) == {"heads": 2, "rate": True, "inside": {"heads": 8, "rate": True}}
    assert what_computes(Part(rate=None)) == {"heads": 8, "rate": False}


MIXTURE = {"kind": "deepseek_moe", "d_ff": 8, "experts": 8, "groups": 4, "top_groups": 2, "top_k": 2}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"altup": {"streams": 2}},
    "mixture": {"block.ffn": MIXTURE},
    "mla": {"block.mixer": "mla"},
}


def training_edits(part: Spec, path: str) -> Iterator[tuple[str, Any]]:
    """Another value for every setting of a model that is said to show in training alone."""
    for name in type(part).model_fields:
        value, facts = getattr(part, name), facts_of(type(part), name)
        if facts & {Fact.TRAINING, Fact.TRAINING_UNLESS_NULL}:
            yield f"{path}{name}", other_value(part, name)
        elif isinstance(value, Spec):
            yield from training_edits(value, f"{path}{name}.")


def other_value(part: Spec, name: str) -> Any:
    annotation = type(part).model_fields[name].annotation
    if name == "init":
        return {"output": "zero"}
    if annotation == Literal["sequence", "batch"]:
        return "batch"
    return not getattr(part, name) if annotation is bool else 0.37


@pytest.mark.parametrize("edits", MODELS.values(), ids=MODELS)
def test_what_is_of_training_changes_no_trained_model(edits: dict[str, Any]) -> None:
    """Same weights, same logits, to the bit, and the same computation; each of these settings by itself."""
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31, mtp={"depth": 1}, **edits)
    model, tokens = random_model(spec), random_tokens(spec, 2, 9)
    changed = dict(training_edits(spec, ""))
    assert {"init", "z_loss", "layer_loss", "block.dropout", "block.mixer.dropout", "mtp.weight"} <= changed.keys()
    assert "unit_weights" in changed
    assert ("altup.clip" in changed) == (spec.altup is not None)
    for path, value in changed.items():
        other = spec.edit({path: value})
        assert other != spec, path
        assert other.computation() == spec.computation(), path
        twin = zoo.Decoder(other).eval()
        twin.load_state_dict(model.state_dict())
        with torch.no_grad():
            assert torch.equal(twin(tokens, **given_to(spec, 2, 9)), model(tokens, **given_to(spec, 2, 9))), path


def test_an_encoder_has_all_but_what_is_the_decoders_alone() -> None:
    alone = {"sharing": {"blocks": 1}, "layer_loss": 0.1, "head_transform": "gelu"}
    spec = zoo.load("small", encoder={"n_layers": 2}, embedding_norm=True, z_loss=0.1, **alone)
    encoder = spec.encoder_spec
    assert encoder is not None
    assert (encoder.features, encoder.head_transform, encoder.visible) == ({}, None, "all")
    assert (encoder.embedding_norm, encoder.d_model, encoder.n_layers) == (True, spec.d_model, 2)
