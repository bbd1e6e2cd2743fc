"""An identity outlives an upgrade: what digests leave out, what is pinned, and stores of earlier versions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

import ablate
from ablate.planning.adoption import adopt
from ablate.study.sections import StudySections
from ablate.training.optimizers.adamw import AdamW
from ablate.training.spec import TrainSpec
from reports.judge.findings.judging import difference_claim
from store import Store
from store.checking import Check
from store.documents import JsonObject
from tests.ablate.pinned import FILE, digests, first_defaults
from tests.unpacking import unpack
from zoo.settings.axis import Spec
from zoo.settings.identity import TAGS, FirstDefault, digest_of, identity_of

FIRST_STORE = Path(__file__).with_name("first_store.tar.xz")
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
    for cls in set(_specs(Spec)) - {StudySections}:  # sections of a file, which no digest covers
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


# A store of the last version whose digests covered every default


@pytest.fixture
def first_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made on a processor whose products are exact in `medium`: elsewhere its runs are not those that are asked for."""
    monkeypatch.setattr("ablate.machine.numerics.use_fast_float32", lambda error: "medium")
    unpack(FIRST_STORE, tmp_path)
    return tmp_path / "runs"


def files(store: Path) -> set[str]:
    """Results, measurements, scores and step times."""
    patterns = ("*/run.json", "*/result.json", "*/measure-*.json", "*/evals-*.json")
    return {str(path.relative_to(store)) for pattern in patterns for path in store.glob(pattern)}


@pytest.mark.parametrize("study", [pytest.param("inherited", marks=pytest.mark.slow), "started"])
def test_what_an_earlier_version_trained_is_found(
    first_store: Path, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Speeds of the arms against each other are younger than the store: five processes would measure them.
    monkeypatch.setattr("ablate.running.costing.Costing.measure", lambda self, folder: None)
    before, judged = files(first_store), Store(first_store).read_ledger(study)
    result = ablate.run(first_store.parent / f"{study}.yaml", store=first_store, device="cpu", progress=False)
    assert (result.trained, files(first_store)) == (0, before)
    assert list(Check(Store(first_store)).damages()) == []
    # The ledger knows the arms: what was judged before is not judged as something new.
    ledger = Store(first_store).read_ledger(study)
    assert ledger[: len(judged)] == judged
    known = {difference_claim(test) for record in judged for test in record.tests}
    assert {difference_claim(test) for record in ledger for test in record.tests} == known
    assert len(judged) == 1


def test_a_search_of_an_earlier_version_goes_on(first_store: Path) -> None:
    before = files(first_store)
    found = ablate.search(first_store.parent / "searched.yaml", store=first_store, device="cpu", progress=False)
    assert [trial.state for trial in found.found.trials] == ["finished", "finished"]
    assert files(first_store) == before


def test_adoption_is_noted_once_and_can_be_noted_again(first_store: Path) -> None:
    store, path = Store(first_store), first_store / "aliases.ndjson"
    adopt(store)
    noted = path.read_text()
    assert set(store.runs()) <= set(store.aliases.values())
    assert all(len(digest) == 20 for digest in store.aliases)
    adopt(Store(first_store))
    assert path.read_text() == noted
    path.unlink()
    adopt(Store(first_store))
    assert path.read_text() == noted


def test_a_result_written_since_is_known_by_both_digests(first_store: Path) -> None:
    """A run that an earlier version began and this one ended."""
    store = Store(first_store)
    adopt(store)
    digest, stored = next((new, old) for new, old in store.aliases.items() if old in store.runs())
    result = store.read_result(digest)
    assert result is not None and result.digest == stored
    store.write_result(result.model_copy(update={"digest": digest}))
    assert Store(first_store).read_result(digest) == Store(first_store).read_result(stored) is not None


def test_what_computes_something_else_since_is_not_adopted(first_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdamW, "identity_version", 2)
    store = Store(first_store)
    adopt(store)
    assert not set(store.runs()) & set(store.aliases.values())


def test_a_store_with_an_unreadable_run_adopts_the_others(first_store: Path) -> None:
    store = Store(first_store)
    first, *others = store.runs()
    run: JsonObject = json.loads((first_store / first / "run.json").read_text())
    del run["checksum"]
    run["model"]["gone_since"] = True
    (first_store / first / "run.json").write_text(json.dumps(run))
    adopt(store)
    assert not {first} & set(store.aliases.values())
    assert set(others) & set(store.aliases.values())


def test_a_store_without_earlier_runs_is_left_alone(tmp_path: Path) -> None:
    adopt(Store(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_settings_of_training_count_by_value() -> None:
    assert identity_of(TrainSpec(context=32, batch=4)) == identity_of(TrainSpec(context=32, batch=4, lr=TrainSpec().lr))
