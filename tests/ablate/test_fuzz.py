"""Whatever a study or a store holds, a command ends with status 0, 1 or 2, and says why: never with a traceback."""

from __future__ import annotations

import copy
import functools
import io
import json
import operator
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import reports
from ablate.cli import main
from ablate.study.reading import load_study
from store import AblateError, Store, checksum, jsonfile
from store.seals import Chain, unsealed
from tests.ablate.full_store import files_by_kind, quiet
from tests.ablate.mutations import mutated, paths, torn

ROOT = Path(__file__).parents[2]
STUDIES = {path.stem: YAML(typ="safe").load(path.read_text()) for path in sorted(ROOT.glob("studies/*.yaml"))}
QUICK = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SCALES = st.sampled_from(["smoke", "cpu", "gpu", "gpu-minutes", "gpu-hour"])

STUDY = st.sampled_from(sorted(STUDIES)).flatmap(lambda name: mutated(STUDIES[name]))


def read_mutated(study: Any, scale: str) -> None:
    try:
        load_study(study, scale)
    except AblateError as error:
        assert str(error).strip()


@QUICK
@given(study=STUDY, scale=SCALES)
def test_a_mutated_study_is_read_or_refused(study: Any, scale: str) -> None:
    read_mutated(study, scale)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@LONG
@given(study=STUDY, scale=SCALES)
def test_many_mutated_studies_are_read_or_refused(study: Any, scale: str) -> None:
    read_mutated(study, scale)


def test_a_scale_edits_arms_that_are_no_map() -> None:
    """Found by the test above, with another seed."""
    edited = {"arms": -1, "scales": {"cpu": {"arms": {"post": {"block.norm_placement": "post"}}}}}
    with pytest.raises(AblateError, match="unknown arm"):
        load_study({**STUDIES["norm_placement"], **edited}, "cpu")


SETS = st.one_of(
    st.text(max_size=30),
    st.builds(
        "{}={}".format,
        st.sampled_from(
            [
                "data",
                "train.lr",
                "arms",
                "base",
                "seeds",
                "evals",
                "measure",
                "budget",
                "scales",
                "x.y",
                "",
                "x." * 3000,
            ]
        ),
        st.sampled_from(
            ["{source: {a: 1}}", "[", "{", "1e999", "!!python/object:os.system", "&a [*a]", "~", "", "- 1"]
        ),
    ),
)


@QUICK
@given(sets=SETS)
def test_any_edit_is_read_or_refused(sets: str) -> None:
    try:
        load_study(STUDIES["norm_placement"], "smoke", [sets])
    except AblateError as error:
        assert str(error).strip()


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with documents of every kind that a study writes."""
    store = shutil.copytree(trained, tmp_path_factory.mktemp("fuzzed") / "runs")
    assert main(["eval", Store(store).runs()[0], "--store", str(store), "--tasks", "heldout_text", "--limit", "2"]) == 0
    return store


def documents(store: Path) -> list[Path]:
    """One file of each kind; runs have the same."""
    digest = Store(store).runs()[0]
    names = ("run.json", "result.json", "metrics.ndjson", "losses.ndjson", "evals-*.json", "evals-*.ndjson")
    inside = [path for name in names for path in store.glob(f"{digest}/{name}")]
    return [*inside, *store.glob("studies/*/study.json"), *store.glob("data/*/meta.json"), *store.glob("ledger/*")]


@contextmanager
def changed(path: Path, content: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(whole)


@st.composite
def damaged(draw: st.DrawFn, store: Path) -> tuple[Path, bytes]:
    """A file of the store, and what becomes of it: torn, or edited and without a checksum."""
    path = draw(st.sampled_from(documents(store)))
    content = path.read_bytes()
    if draw(st.booleans()):
        return path, draw(torn(content))
    if path.suffix == ".json":
        document = json.loads(content)
        del document["checksum"]
        return path, json.dumps(draw(mutated(document))).encode()
    lines = [json.loads(line) for line in content.splitlines()]
    return path, b"".join(json.dumps(line).encode() + b"\n" for line in draw(mutated(lines)))


ODD = {str: ("odd\u202e",), int: (-1, 0, 2**62), float: (-1.0, 0.0, 1e140)}
"""Values of a field's own type, which few fields should have."""


def with_odd_values(path: Path) -> Iterator[tuple[Any, bytes]]:
    """A document or a log with an odd value in one field after another, sealed as if it had been written so."""
    is_log = path.suffix == ".ndjson"
    content = path.read_bytes()
    lines = [checksum.unsealed_json(content).body] if not is_log else list(map(unsealed, content.splitlines()))
    known = [json.loads(line) for line in lines]
    for place in paths(known):
        *around, last = place
        if any(isinstance(key, int) and key > 1 for key in place):  # as those before it
            continue
        value = functools.reduce(operator.getitem, place, known)
        for other in ODD.get(type(value), ()):
            found = copy.deepcopy(known)
            functools.reduce(operator.getitem, around, found)[last] = other
            yield (place, other), relogged(path, found) if is_log else redocumented(path, found[0])


def redocumented(path: Path, document: Any) -> bytes:
    return checksum.sealed_json(json.dumps(document, indent=1) + "\n", jsonfile.place_of(path)).encode()


def relogged(path: Path, lines: list[Any]) -> bytes:
    bodies = [json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() for line in lines]
    first = path.read_bytes().splitlines()[0]
    owner = next(name for name in (path.stem, path.parent.name) if Chain(name).body(first) is not None)
    return b"".join(map(Chain(owner).sealed, bodies))


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.filterwarnings("ignore")
def test_whatever_a_field_of_a_sealed_document_holds_is_read_or_refused(full: Path) -> None:
    for kind, files in files_by_kind(full)[0].items():
        if kind.changed or not files or files[0].suffix not in (".json", ".ndjson") or "model" in files[0].parts:
            continue
        for case, content in with_odd_values(files[0]):
            for command in (["list", "--store", str(full)], ["report", str(full)], ["check", str(full)]):
                with changed(files[0], content):
                    status, said = quiet(*command)
                assert status in (0, 1, 2) and "Traceback" not in said, (files[0], case, command)


def read_all(store: Path) -> None:
    """`ablate check` reads everything; a summary is made of what it can make out."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["check", str(store)]) in (0, 1)
    try:
        reports.summarise(next(store.glob("studies/*")))
    except AblateError as error:
        assert str(error).strip()


def test_a_damaged_store_is_read_or_refused(evaluated: Path) -> None:
    @QUICK
    @given(damage=damaged(evaluated))
    def read(damage: tuple[Path, bytes]) -> None:
        with changed(*damage):
            read_all(evaluated)

    read()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_damage_is_read_or_refused(evaluated: Path) -> None:
    """Pages and the index too."""

    @LONG
    @given(damage=damaged(evaluated))
    def read(damage: tuple[Path, bytes]) -> None:
        with changed(*damage), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert main(["check", str(evaluated)]) in (0, 1)
            assert main(["report", str(evaluated)]) in (0, 2)

    read()
