"""Tables of an index against the files that they were read from: whatever becomes of either, the files are right."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.wings.index import index
from ablate.wings.index.index import KnownOutcomes
from store import Store, StoreError, jsonfile, seals, stamps
from store.documents import ItemLoss
from store.stamps import index_path
from store.tables import ITEM_LOSSES, METRICS, RunTables
from tests.ablate.full_store import write_every_index
from tests.ablate.test_integrity import CHANGES, CUTS
from tests.ablate.wings.archive.test_quick_check import changed_places, linked, replaced, written_in_place
from tests.documents import metrics_of, result_of, run_of

RUNS = ("aa", "bb", "cc", "dd", "ee")
"""`cc` diverged without a loss, `dd` has begun, `ee` is not there."""
ASKED = (*RUNS, "aa")
"""Two arms share a run."""
KINDS = ("results", "metrics", "losses")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = Store(tmp_path / "runs")
    for number, digest in enumerate(RUNS[:4]):
        store.write_run(run_of(digest))
        store.append_metrics(digest, *(metrics_of(step, loss=5.0 - number / 8, lr=0.125) for step in range(1, 4)))
        if number < 2:
            items = [ItemLoss(item=item, nats=2.5 + number, targets=1, bytes=None) for item in range(number + 1)]
            store.write_result(result_of(digest, loss=2.5 + number, loss_spike_steps=(1, 2)), items)
    store.write_result(result_of("cc", status="diverged", reason="the loss is not finite", loss=None))
    return store.root


@pytest.fixture
def _aged(monkeypatch: pytest.MonkeyPatch) -> None:
    write_every_index(monkeypatch)


@pytest.fixture
def indexed(root: Path, _aged: None) -> Path:
    said(root)
    assert all(index_path(root, kind).exists() for kind in KINDS)
    return root


def said(root: Path) -> dict[str, Any]:
    """What a store says of its runs, or the complaint instead."""
    store = Store(root)
    tables = RunTables(store, ASKED)
    return {
        "results": _or_refused(lambda: tables.results.rows(named=True)),
        "metrics": _or_refused(lambda: _records(*tables.metrics(METRICS))),
        "losses": _or_refused(lambda: _records(*tables.losses(ITEM_LOSSES))),
        **{digest: _or_refused(lambda digest=digest: store.outcome(digest)) for digest in RUNS},
    }


def _records(frame: Any, counts: list[int]) -> object:
    return frame.rows(named=True), counts


def _or_refused(read: Callable[[], object]) -> object:
    try:
        return read()
    except StoreError as error:
        return str(error)


def by_files_alone(root: Path) -> dict[str, Any]:
    for kind in KINDS:
        index_path(root, kind).unlink(missing_ok=True)
    return said(root)


def test_tables_have_what_the_files_say(indexed: Path) -> None:
    """Each number read from the text of its file."""
    found = said(indexed)
    for digest, row in zip(ASKED, found["results"], strict=True):
        path = indexed / digest / "result.json"
        result = json.loads(path.read_text()) if path.exists() else {}
        wanted = ("loss", "reason", "tokens", "judging_loss", "parameters", "started", "peak_memory_source")
        assert [row[name] for name in wanted] == [result.get(name) for name in wanted]
        assert row["status"] == result.get("status", "absent" if digest == "ee" else "partial")
        assert row["tokens_per_second"] == result.get("tokens_per_second", {}).get("median")
        assert row["grad_norm_spikes"] == result.get("grad_norm", {}).get("spikes")
        assert row["loss_spike_steps"] == result.get("loss_spike_steps")
        assert json.loads(row["environment"] or "null") == result.get("environment")
        assert row["has_probes"] == (False if result else None)
        assert (row["data"] is None) == (digest == "ee")
    for name, columns in (("metrics", METRICS), ("losses", ITEM_LOSSES)):
        texts = [indexed / digest / f"{name}.ndjson" for digest in ASKED]
        lines = [path.read_text().splitlines() if path.exists() else [] for path in texts]
        records = [json.loads(line) for each in lines for line in each]
        assert found[name] == ([{each: of.get(each) for each in columns} for of in records], list(map(len, lines)))


def test_without_indexes_tables_are_the_same(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(indexed)
    monkeypatch.setattr("store.tables.module_of", lambda place: None)
    assert said(indexed) == found


def test_files_that_an_index_knows_are_not_opened(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [each for each in ASKED if each in ("aa", "bb", "cc")]
    before = RunTables(Store(indexed), known).results, Store(indexed).outcome("bb")
    store = Store(indexed)
    for module in (jsonfile, seals):
        monkeypatch.delattr(module, "read_regular")
    tables = RunTables(store, known)
    assert tables.results.equals(before[0]) and store.outcome("bb") == before[1]
    assert tables.metrics(["step"])[1] == [3] * 4 and tables.losses(["nats"])[1] == [1, 2, 0, 1]
    assert list(KnownOutcomes(indexed)) == ["aa", "bb", "cc"]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


BECOMES: list[Callable[[Path], object]] = [
    written_in_place,
    replaced,
    changed_places,
    linked,
    truncated,
    Path.unlink,
    lambda path: shutil.rmtree(path.parent),
]


@pytest.mark.parametrize("name", ["result.json", "run.json", "metrics.ndjson", "losses.ndjson"])
@pytest.mark.parametrize("becomes", BECOMES)
def test_no_number_of_a_file_that_changed_is_from_an_index(
    becomes: Callable[[Path], object], name: str, indexed: Path
) -> None:
    before = said(indexed)
    becomes(indexed / "aa" / name)
    after = said(indexed)
    assert after == by_files_alone(indexed)
    assert becomes is linked or after != before  # a link leads to the same content


def test_a_target_that_changes_under_its_link_is_read(root: Path, _aged: None) -> None:
    linked(root / "aa/result.json")
    said(root)
    written_in_place(root / "aa/result.json")
    assert said(root) == by_files_alone(root)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [*CHANGES.values(), *CUTS.values(), lambda _: b"", lambda _: b"text\n" * 99])
def test_a_damaged_index_knows_nothing(change: Callable[[bytes], bytes | None], kind: str, indexed: Path) -> None:
    right, path = said(indexed), index_path(indexed, kind)
    path.write_bytes(change(path.read_bytes()) or b"")
    assert said(indexed) == right


def test_every_bit_of_an_index_is_sealed(indexed: Path) -> None:
    path = index_path(indexed, "results")
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not KnownOutcomes(indexed)
    path.write_bytes(content)
    assert KnownOutcomes(indexed)


def test_indexes_that_changed_places_know_nothing(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = said(indexed)
    first, second = (index_path(indexed, kind) for kind in ("metrics", "losses"))
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    assert said(indexed) == right
    monkeypatch.setitem(index.RUN, "another", index.pl.Int64())
    assert not KnownOutcomes(indexed), "of another version"


def test_the_index_of_another_store_says_nothing_of_this_one(indexed: Path, tmp_path: Path) -> None:
    """Also of a copy whose times are those of the first."""
    copy = shutil.copytree(indexed, tmp_path / "copy", copy_function=shutil.copy2)
    written_in_place(copy / "aa/result.json")
    assert KnownOutcomes(copy)
    assert said(copy) == by_files_alone(copy)


def test_a_store_that_may_not_be_written_is_read_as_before(
    root: Path, _aged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = said(root)
    by_files_alone(root)
    monkeypatch.setattr(index, "clock", lambda path: None)
    before = sorted(root.rglob("*"))
    for kind in KINDS:
        index_path(root, kind).unlink()
    assert said(root) == right
    assert sorted(root.rglob("*")) == [path for path in before if path.suffix != ".arrow"]


def test_files_that_may_change_within_a_tick_are_in_no_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LEAST_NEW", 1)
    said(root)
    assert not any(index_path(root, kind).exists() for kind in KINDS)


def test_a_file_that_changed_just_before_a_long_reading_is_in_no_index(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change once more within the same tick, just after it was read."""
    monkeypatch.setattr(index, "LEAST_NEW", 1)
    now = stamps.clock(root / "clock")
    assert now is not None
    reading = {"seconds": 0}
    monkeypatch.setattr(index, "clock", lambda path: now + reading["seconds"] * 10**9)
    read = Store.read_run

    def slowly(store: Store, digest: str) -> object:
        reading["seconds"] += 60
        return read(store, digest)

    monkeypatch.setattr(Store, "read_run", slowly)
    said(root)
    assert not index_path(root, "results").exists()


def test_a_file_that_changes_while_it_is_read_is_in_no_index(
    root: Path, _aged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Store.read_run

    def read_and_changed(store: Store, digest: str) -> object:
        found = read(store, digest)
        if digest == "aa":
            shutil.copy(root / "aa/result.json", root / "kept")
            (root / "kept").rename(root / "aa/result.json")
        return found

    monkeypatch.setattr(Store, "read_run", read_and_changed)
    said(root)
    assert sorted(KnownOutcomes(root)) == ["bb", "cc"]


def test_an_index_grows_and_forgets_runs_that_are_gone(indexed: Path) -> None:
    store = Store(indexed)
    shutil.rmtree(indexed / "bb")
    store.write_result(result_of("dd", loss=4.0))
    assert said(indexed)["dd"].loss == 4.0
    assert sorted(KnownOutcomes(indexed)) == ["aa", "cc", "dd"]
    assert said(indexed) == by_files_alone(indexed)


def test_a_torn_result_that_an_index_knows_is_no_outcome(root: Path, _aged: None) -> None:
    """Else planning would take the run for one that diverged."""
    path = root / "bb/result.json"
    path.write_bytes(path.read_bytes()[:100])
    found = said(root), said(root)
    assert index_path(root, "results").exists()
    assert found[0] == found[1] and found[0]["bb"] is None
    assert Store(root).status("bb") == "partial"


def test_an_index_that_is_no_regular_file_is_not_read(indexed: Path) -> None:
    before = said(indexed)
    for kind in KINDS:
        index_path(indexed, kind).unlink()
        os.mkfifo(index_path(indexed, kind))  # whoever opens it waits
    assert said(indexed) == before
