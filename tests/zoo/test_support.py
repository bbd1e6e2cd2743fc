"""Parts and settings that declare nothing are refused: beside other features, and by every operation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
from pydantic import Field, ValidationError

import zoo.features
from ablate.planning.plan_shown import refusal
from ablate.training.execution import Execution
from ablate.training.spec import TrainSpec
from ablate.training.transfer import refusals
from ablate.wings.starts.lora import LoraSpec, check_lora
from tests.documents import run_of
from zoo.block_features import BlockFeature
from zoo.block_spec import BlockSpec
from zoo.compatibility.support import declared, switches, unsupported
from zoo.compatibility.traits import EVERY_OPERATION, NO_OPERATION, OF_MODULES, OF_VALUES, Operation, Operations
from zoo.conversion.widening import check_specs
from zoo.errors import SpecError
from zoo.features import Feature
from zoo.mixers.attention import Attention
from zoo.mixers.none import NoMixer
from zoo.settings.axis import Spec, is_off, variants
from zoo.settings.explain import choice_of
from zoo.settings.field_tags import As, Supports, said_of
from zoo.spec import ModelSpec

AXES = ("norms", "residuals", "positions", "positions.scalings", "sparsities", "mixers", "ffns")


class Dummy(Feature):
    """Does nothing, and declares nothing."""


class BesideMixer(BlockFeature):
    """The same in a block."""


class Undeclared(NoMixer):
    """The same as a mixer."""


class Extended(Attention):
    """A mixer that could compute something else than the one that it extends."""


class Switched(Attention):
    """A declared mixer with a setting of which nothing is declared."""

    supports: ClassVar[Operations] = EVERY_OPERATION
    switch: bool = False


class Block(BlockSpec):
    dummy: BesideMixer | None = Field(default=None, exclude_if=is_off)


class Model(ModelSpec):
    dummy: Dummy | None = Field(default=None, exclude_if=is_off)


SMALL: dict[str, Any] = {"vocab_size": 16, "d_model": 32, "n_layers": 6, "embedding_scale": "sqrt_d_model"}
FEATURES: dict[str, Any] = {
    "unet_skips": True,
    "first_stream": True,
    "layer_gains": True,
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


def paths(model: ModelSpec, operation: Operation) -> list[str]:
    return [part.path for part in unsupported(model, operation)]


def test_all_features_of_a_model_are_here() -> None:
    made = {type(model_of(**{name: value}).features[name]) for name, value in FEATURES.items()}
    own = {f"zoo.features.{path.stem}" for path in Path(*zoo.features.__path__).glob("*.py")}
    assert made == {cls for cls in Feature.__subclasses__() if cls.__module__ in own}


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_that_declares_nothing_is_refused_beside_every_other(name: str) -> None:
    with pytest.raises(ValidationError, match=r"dummy needs|dummy: .* needs"):
        model_of(dummy=Dummy(), **{name: FEATURES[name]})


@pytest.mark.parametrize("case", UNDECLARED)
def test_a_part_that_declares_nothing_is_refused_by_every_operation(case: str) -> None:
    settings, path = UNDECLARED[case]
    model = model_of(**settings)
    assert {each: paths(model, each) for each in Operation} == {each: [path] for each in Operation}
    (part,) = unsupported(model, Operation.LORA)
    assert str(part).endswith(", which declares no `supports`")
    train = TrainSpec.model_validate({"width_transfer": {"base_width": 32}})
    assert f"does not support {part}" in refusals(model, train)
    with pytest.raises(SpecError, match=f"train.lora: does not support {part}: FLOPs"):
        check_lora(model, LoraSpec())
    with pytest.raises(SpecError, match=f"{path}: growth: width cannot widen {part.name}"):
        check_specs(model, model)
    sharded = refusal(run_of("0"), TrainSpec(), model, Execution(devices=2, shard=True))
    assert sharded == f"`--shard` does not support {part}"


def test_a_setting_that_declares_nothing_is_refused_by_operations_on_what_is_computed() -> None:
    model = model_of(**SETTING)
    found = {each: paths(model, each) for each in Operation}
    assert {each for each, where in found.items() if where == ["block.mixer.switch"]} == EVERY_OPERATION - OF_MODULES
    assert {each for each, where in found.items() if not where} == OF_MODULES
    (setting,) = unsupported(model, Operation.WIDENING)
    assert str(setting) == "mixer.switch, which declares no `Supports`"


def test_a_variant_does_not_inherit_the_declaration_of_the_one_that_it_extends() -> None:
    model = model_of(block=BlockSpec(mixer=Extended()))
    assert {each: paths(model, each) for each in Operation} == {each: ["block.mixer"] for each in Operation}


def test_a_declared_part_that_leaves_an_operation_out_is_named_without_the_attribute() -> None:
    (part,) = unsupported(zoo.load("small", **{"block.norm": "dyt"}), Operation.WIDTH_TRANSFER)
    assert str(part) == "the norm dyt"


@pytest.mark.parametrize(("over", "found"), [("head", []), ("heads", []), ("full", ["block.mixer.qk_norm"])])
def test_a_norm_over_a_head_is_as_wide_in_a_wider_model(over: str, found: list[str]) -> None:
    edits = {"block.mixer.qk_norm": "partial_rmsnorm", "block.mixer.qk_norm_over": over}
    model = zoo.load("small", **edits)
    assert {each: paths(model, each) for each in OF_VALUES} == dict.fromkeys(OF_VALUES, found)


def test_a_plain_model_supports_every_operation() -> None:
    assert {each: paths(model_of(), each) for each in Operation} == {each: [] for each in Operation}


@pytest.mark.parametrize("axis", AXES)
def test_every_variant_that_ships_declares_what_it_supports(axis: str) -> None:
    assert [name for name, variant in variants(f"zoo.{axis}").items() if declared(variant) is None] == []


def test_every_setting_that_ships_declares_what_it_supports() -> None:
    """Where its part supports an operation that depends on what is computed, so that the setting could break it."""
    missing = []
    for part in shipped_parts():
        for name in switches(part) if (declared(part) or NO_OPERATION) & OF_VALUES else ():
            if said_of(part, name, Supports) is None and not holds_a_part(part, name):
                missing.append(f"{part.__name__}.{name}")
    assert missing == []


def shipped_parts() -> Iterator[type[Spec]]:
    """The specs of models, blocks, features and variants."""
    yield from (ModelSpec, BlockSpec, *subclasses(Feature), *subclasses(BlockFeature))
    for axis in AXES:
        yield from variants(f"zoo.{axis}").values()


def subclasses(base: type[Spec]) -> Iterator[type[Spec]]:
    yield from (each for each in base.__subclasses__() if each.__module__.startswith("zoo."))


def holds_a_part(part: type[Spec], name: str) -> bool:
    """Whether the setting is a spec where it is on, which declares for itself."""
    field = part.model_fields[name]
    specs = [each for each in get_args(field.annotation) if isinstance(each, type) and issubclass(each, Spec)]
    return bool(specs) or choice_of(field) is not None or said_of(part, name, As) is not None
