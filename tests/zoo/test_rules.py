"""Parts and settings that declare nothing are refused: beside other features, and by every rule."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

import zoo
from ablate.training.lora import LoraSpec, check_lora
from ablate.training.sharding import refusal
from ablate.training.spec import TrainSpec
from ablate.training.transfer import refusals
from tests.documents import run_of
from zoo.axis import Spec, is_off, variants
from zoo.block_features import BlockFeature
from zoo.block_spec import BlockSpec
from zoo.conversion.widenable import check_specs
from zoo.errors import SpecError
from zoo.facts import Fact
from zoo.features import Feature
from zoo.mixers.attention import Attention
from zoo.mixers.none import NoMixer
from zoo.rules import outside
from zoo.spec import ModelSpec
from zoo.traits import OF_MODULES, OF_VALUES, Rule

AXES = ("norms", "residuals", "positions", "positions.scalings", "sparsities", "mixers", "ffns")


class Dummy(Feature):
    """Does nothing, and declares nothing."""


class BesideMixer(BlockFeature):
    """The same in a block."""


class Undeclared(NoMixer):
    """The same as a mixer."""

    rules = Spec.rules


class Switched(Attention):
    """A declared mixer with a setting of which nothing is declared."""

    switch: bool = False


class Block(BlockSpec):
    dummy: BesideMixer | None = Field(default=None, exclude_if=is_off)


class Model(ModelSpec):
    dummy: Annotated[Dummy | None, Fact.DECODER] = Field(default=None, exclude_if=is_off)


SMALL: dict[str, Any] = {"vocab_size": 16, "d_model": 32, "n_layers": 6, "embedding_scale": "sqrt_d_model"}
FEATURES: dict[str, Any] = {
    "unet_skips": True,
    "value_embeddings": {},
    "altup": {},
    "per_layer_embeddings": {},
    "chunks": {},
    "layer_loss": 0.1,
    "mtp": {},
    "encoder": {},
    "sharing": {},
}
UNDECLARED: dict[str, tuple[dict[str, Any], str]] = {
    "feature": ({"dummy": Dummy()}, "dummy"),
    "block feature": ({"block": Block(dummy=BesideMixer())}, "block.dummy"),
    "mixer": ({"block": BlockSpec(mixer=Undeclared())}, "block.mixer"),
}
SETTING = {"block": BlockSpec(mixer=Switched(switch=True))}


def model_of(**settings: Any) -> Model:
    return Model.model_validate({**SMALL, **settings})


def test_all_features_of_a_model_are_here() -> None:
    made = {type(model_of(**{name: value}).features[name]) for name, value in FEATURES.items()}
    assert made == set(Feature.__subclasses__()) - {Dummy}


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_that_declares_nothing_is_refused_beside_every_other(name: str) -> None:
    with pytest.raises(ValidationError, match=r"dummy needs|dummy: .* needs"):
        model_of(dummy=Dummy(), **{name: FEATURES[name]})


@pytest.mark.parametrize("case", UNDECLARED)
def test_a_part_that_declares_nothing_is_refused_by_every_rule(case: str) -> None:
    settings, path = UNDECLARED[case]
    model = model_of(**settings)
    assert {rule: [part.path for part in outside(model, rule)] for rule in Rule} == {rule: [path] for rule in Rule}
    (part,) = outside(model, Rule.LORA)
    train = TrainSpec.model_validate({"width_transfer": {"base_width": 32}})
    assert f"no rule is known for {part}" in refusals(model, train)
    with pytest.raises(SpecError, match=f"the FLOPs of adapters are not counted beside {part}"):
        check_lora(model, LoraSpec())
    with pytest.raises(SpecError, match=f"{path}: growth: width knows no way to widen {part.name}"):
        check_specs(model, model)
    sharded = refusal(TrainSpec(), run_of("0"), zoo.build(model))
    assert sharded is not None and f"with {part}" in sharded


def test_a_setting_that_declares_nothing_is_refused_by_rules_about_what_is_computed() -> None:
    model = model_of(**SETTING)
    found = {rule: [part.path for part in outside(model, rule)] for rule in Rule}
    assert {rule for rule, paths in found.items() if paths == ["block.mixer.switch"]} == OF_VALUES
    assert {rule for rule, paths in found.items() if not paths} == OF_MODULES


def test_without_such_parts_every_rule_holds_for_a_plain_model() -> None:
    assert {rule: outside(model_of(), rule) for rule in Rule} == {rule: [] for rule in Rule}


@pytest.mark.parametrize("axis", AXES)
def test_every_variant_that_ships_declares_its_rules(axis: str) -> None:
    assert [name for name, variant in variants(f"zoo.{axis}").items() if not variant.rules] == []
