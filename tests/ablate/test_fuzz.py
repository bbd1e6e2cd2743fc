"""Whatever a study or a store holds, a command ends with status 0, 1 or 2, and says why: never with a traceback."""

from __future__ import annotations

import io
import json
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
from store import AblateError, Store
from tests.ablate.mutations import mutated, torn

ROOT = Path(__file__).parents[2]
STUDIES = {path.stem: YAML(typ="safe").load(path.read_text()) for path in sorted(ROOT.glob("studies/*.yaml"))}
QUICK = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SCALES = st.sampled_from(["smoke", "cpu", "gpu", "gpu-quick", "gpu-hour"])

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
            ["data", "train.lr", "arms", "base", "seeds", "evals", "measure", "budget", "scales", "x.y", ""]
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
