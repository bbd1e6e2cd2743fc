"""An identity outlives an upgrade: what digests leave out, what is pinned, and stores of earlier versions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from ablate.study.sections import StudySections
from ablate.training.optimizers.adamw import AdamW
from ablate.training.spec import TrainSpec
from tests.ablate.pinned import FILE, digests, first_defaults
from zoo.settings.axis import Spec
from zoo.settings.identity import TAGS, FirstDefault, digest_of, identity_of

"""Two studies, with tuning, a start, a teacher, measurements and evaluations, and a search, by the last version whose
digests covered every default. Weights are set to zero: nothing here reads them."""
ADDED = """
import json
import sys
from pydantic._internal._model_construction import ModelMetaclass

plain = ModelMetaclass.__new__

def with_a_setting(mcs, name, bases, namespace, *rest, **settings):
    roots = {("zoo.settings.axis", "Spec"), ("store.documents._document", "Part")}
    if (namespace.get("__module__"), name) in roots:
        namespace.setdefault("__annotations__", {})["added_since"] = "bool"
        namespace["added_since"] = False
    return plain(mcs, name, bases, namespace, *rest, **settings)

ModelMetaclass.__new__ = with_a_setting
from ablate.training.optimizers.adamw import AdamW
from tests.ablate.pinned import digests
from zoo.settings.identity import identity_of

assert identity_of(AdamW(added_since=True)) == {**identity_of(AdamW()), "added_since": True}
json.dump(digests("smoke"), sys.stdout)
"""
"""Every kind of spec, and every stored document, has one more setting with a default."""


@pytest.fixture(scope="module")
def pinned() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow  # all scales take a minute; the smoke scale is in the test below
def test_digests_of_what_ships_are_pinned(pinned: dict[str, dict[str, Any]]) -> None:
    """Where this fails, stored runs would be trained again: `tests/ablate/pinned.py` writes the file anew."""
    assert digests() == pinned["digests"]


def test_values_that_digests_leave_out_are_pinned(pinned: dict[str, dict[str, Any]]) -> None:
    """Where this fails for a setting that is not new, runs with its old default and with its new one would have one
    digest: annotate it with `FirstDefault`."""
    found = first_defaults()
    assert found == pinned["first defaults"]


@pytest.mark.slow
def test_a_setting_added_to_every_spec_changes_no_digest(pinned: dict[str, dict[str, Any]]) -> None:
    out = subprocess.run([sys.executable, "-c", ADDED], capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert found == {name: pinned["digests"][name] for name in found}
    assert len(found) > 200


class _Before(Spec):
    rate: float = 1.0
    inner: AdamW | None = None


class _After(Spec):
    rate: Annotated[float, FirstDefault(1.0)] = 2.0
    inner: AdamW | None = AdamW()


class _Recomputed(AdamW):
    identity_version: ClassVar[int] = 2


def test_a_changed_default_keeps_the_digest_of_each_value() -> None:
    assert identity_of(_After(rate=1.0)) == identity_of(_Before()) == {}
    assert identity_of(_After()) == identity_of(_Before(rate=2.0)) == {"rate": 2.0}


def test_null_and_a_spec_of_defaults_differ() -> None:
    assert identity_of(_Before(inner=AdamW())) == {"inner": {"kind": "adamw"}}
    assert identity_of(_After(rate=1.0, inner=None)) == {"inner": None}


def test_code_that_computes_something_else_has_another_digest() -> None:
    assert identity_of(_Recomputed()) == {**identity_of(AdamW()), "identity_version": 2}
    assert identity_of(_Before(inner=_Recomputed()))["inner"]["identity_version"] == 2


def test_true_and_one_differ() -> None:
    assert len({digest_of(identity_of(value)) for value in (True, 1, 1.0, "1")}) == 4


def test_specs_that_can_stand_in_one_place_are_told_apart_without_defaults() -> None:
    """Tags or required fields tell specs apart: otherwise two of them could be the same data."""
    for cls in set(_specs(Spec)) - {*StudySections.__mro__}:  # sections of a file, which no digest covers
        for name, field in cls.model_fields.items():
            choices = [each for each in _classes(field.annotation) if isinstance(each, type)]
            specs = {each for each in choices if issubclass(each, BaseModel)}
            assert len({_told_by(each) for each in specs}) == len(specs), f"{cls.__name__}.{name}"


def _told_by(spec: type[BaseModel]) -> frozenset[tuple[str, Any]]:
    fields = spec.model_fields
    return frozenset(
        (name, field.get_default()) for name, field in fields.items() if name in TAGS or field.is_required()
    )


def _specs(cls: type[Spec]) -> Iterator[type[Spec]]:
    for each in cls.__subclasses__():
        yield each
        yield from _specs(each)


def _classes(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _classes(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for each in get_args(annotation):
            yield from _classes(each)
    elif origin is not Literal:
        yield annotation


def test_settings_of_training_count_by_value() -> None:
    assert identity_of(TrainSpec(context=32, batch=4)) == identity_of(TrainSpec(context=32, batch=4, lr=TrainSpec().lr))
