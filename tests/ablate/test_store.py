"""The store under torn files, foreign documents, kills and rivals."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate.store import LockedError, Store, StoreError

DIGEST = "a1b2c3"
RESULT = {"schema": 1, "digest": DIGEST, "status": "finished", "loss": 2.5}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def write_result(store: Store, content: bytes) -> None:
    path = store.result_path(DIGEST)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def subprocess_of(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)


def test_layout_is_the_one_in_the_architecture(store: Store) -> None:
    assert store.run_path("d") == store.root / "d" / "run.json"
    assert store.metrics_path("d") == store.root / "d" / "metrics.ndjson"
    assert store.model_dir("d") == store.root / "d" / "model"
    assert store.measure_path("d", "m") == store.root / "d" / "measure-m.json"
    assert store.samples_path("d", "e") == store.root / "d" / "evals-e.samples.ndjson"
    assert store.study_path("x", "cpu") == store.root / "studies" / "x-cpu" / "study.json"


@pytest.mark.parametrize("digest", ["", "..", "a/b", "../a", "studies", "data", "a b", ".x", "a\n"])
def test_what_cannot_be_a_digest_is_refused(store: Store, digest: str) -> None:
    with pytest.raises(StoreError):
        store.run_dir(digest)


def test_hostile_study_names_stay_inside_the_store_and_apart(store: Store) -> None:
    names = ["../../etc", "<script>alert(1)</script>", "a/b", "a%2Fb", "..", "a b"]
    folders = [store.study_dir(name, "cpu") for name in names]
    assert len(set(folders)) == len(names)
    assert {folder.resolve().parent for folder in folders} == {store.root.resolve() / "studies"}


def test_a_document_comes_back_as_written(store: Store) -> None:
    document = {**RESULT, "reason": None, "text": "é\u2028</script>", "nested": {"a": [1, 2.5]}}
    store.write_json(store.result_path(DIGEST), document)
    assert store.read_result(DIGEST) == document
    assert [path.name for path in store.run_dir(DIGEST).iterdir()] == ["result.json"]


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}])
def test_what_is_not_strict_json_is_refused_and_leaves_the_old(store: Store, value: object) -> None:
    store.write_json(store.result_path(DIGEST), RESULT)
    with pytest.raises(StoreError, match=r"result\.json"):
        store.write_json(store.result_path(DIGEST), {**RESULT, "loss": value})
    assert store.read_result(DIGEST) == RESULT


WHOLE = json.dumps(RESULT).encode()


@pytest.mark.parametrize("content", [b"", *[WHOLE[:n] for n in range(1, len(WHOLE))], bytes(64)])
def test_half_written_results_are_never_read(store: Store, content: bytes) -> None:
    write_result(store, content)
    assert store.read_result(DIGEST) is None
    assert store.status(DIGEST) == "absent"


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_schema_is_an_error_that_names_it(store: Store, version: object) -> None:
    write_result(store, json.dumps({**RESULT, "schema": version}).encode())
    with pytest.raises(StoreError, match=f"schema version {version!r}"):
        store.status(DIGEST)


def test_a_result_of_another_run_or_of_no_known_status_is_an_error(store: Store) -> None:
    write_result(store, json.dumps({**RESULT, "digest": "other"}).encode())
    with pytest.raises(StoreError, match="other"):
        store.read_result(DIGEST)
    write_result(store, json.dumps({**RESULT, "status": "maybe"}).encode())
    with pytest.raises(StoreError, match="maybe"):
        store.read_result(DIGEST)


def test_status_follows_the_documents(store: Store) -> None:
    assert store.status(DIGEST) == "absent"
    store.write_json(store.run_path(DIGEST), {"schema": 1, "digest": DIGEST})
    assert store.status(DIGEST) == "partial"
    for status in ("finished", "diverged"):
        store.write_json(store.result_path(DIGEST), {**RESULT, "status": status})
        assert store.status(DIGEST) == status


def test_listings(store: Store) -> None:
    assert store.runs() == [] == store.studies()
    store.write_json(store.run_path("b"), {"schema": 1, "digest": "b"})
    store.write_json(store.run_path("a"), {"schema": 1, "digest": "a"})
    store.write_json(store.study_path("x", "cpu"), {"schema": 1, "name": "x", "scale": "cpu"})
    (store.data_dir() / "d").mkdir(parents=True)
    assert store.runs() == ["a", "b"]
    assert store.studies() == [store.study_dir("x", "cpu")]
    assert Store.of_study(store.studies()[0]).runs() == ["a", "b"]
    assert store.read_study("x", "cpu") == {"schema": 1, "name": "x", "scale": "cpu"}


def test_a_failed_replacement_leaves_nothing(store: Store) -> None:
    path = store.state_path(DIGEST)
    with pytest.raises(KeyboardInterrupt), store.replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(store.run_dir(DIGEST).iterdir()) == []


def test_folders_are_replaced_whole(store: Store) -> None:
    for name in ("old", "new"):
        with store.replacing(store.model_dir(DIGEST)) as temporary:
            temporary.mkdir()
            (temporary / name).write_text(name)
    assert [path.name for path in store.model_dir(DIGEST).iterdir()] == ["new"]


def test_metrics_come_back_in_order_with_nulls(store: Store) -> None:
    assert store.read_metrics(DIGEST).height == 0
    store.append_metrics(DIGEST, {"step": 0, "tokens": 0, "seconds": 0, "validation_loss": 5.5})
    store.append_metrics(DIGEST, {"step": 1, "tokens": 8, "loss": 5, "grad_norm": math.inf})
    store.append_metrics(DIGEST, {"step": 2, "tokens": 16, "loss": math.nan, "grad_norm": 1.5})
    frame = store.read_metrics(DIGEST)
    assert frame["step"].to_list() == [0, 1, 2]
    assert frame["loss"].to_list() == [None, 5.0, None]
    assert frame["validation_loss"].to_list() == [5.5, None, None]
    assert frame["grad_norm"].to_list() == [None, None, 1.5]
    assert frame.schema == store.read_metrics("another").schema
    assert store.read_metrics(DIGEST, ["loss", "step"]).equals(frame.select("loss", "step"))
    store.append_metrics(DIGEST, {"step": 3, "unheard_of": 2})
    assert store.read_metrics(DIGEST)["unheard_of"].to_list() == [None, None, None, 2.0]


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"{", b"\x00\x00\x00", b'{"step"\n'])
def test_a_torn_last_line_is_cut(store: Store, torn: bytes) -> None:
    store.append_metrics(DIGEST, {"step": 1, "loss": 5.0})
    store.append_metrics(DIGEST, {"step": 2, "loss": 4.0})
    with store.metrics_path(DIGEST).open("ab") as file:
        file.write(torn)
    assert store.read_metrics(DIGEST)["step"].to_list() == [1, 2]
    store.truncate_logs(DIGEST, 2)
    store.append_metrics(DIGEST, {"step": 3, "loss": 3.0})
    assert store.read_metrics(DIGEST)["step"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("before", [b"", b'{"step": 1}\n'])
def test_appending_cuts_a_torn_line_first(store: Store, before: bytes) -> None:
    store.run_dir(DIGEST).mkdir(parents=True)
    store.metrics_path(DIGEST).write_bytes(before + b'{"step": 2, "lo')
    store.append_metrics(DIGEST, {"step": 2})
    assert store.metrics_path(DIGEST).read_bytes() == before + b'{"step": 2}\n'


def test_a_broken_line_in_the_middle_is_an_error(store: Store) -> None:
    store.run_dir(DIGEST).mkdir(parents=True)
    store.metrics_path(DIGEST).write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(StoreError, match=r"metrics\.ndjson:2"):
        store.read_metrics(DIGEST)


def test_truncating_drops_what_came_after_the_checkpoint(store: Store) -> None:
    store.truncate_logs(DIGEST, 0)
    for step in range(6):
        store.append_metrics(DIGEST, {"step": step})
    store.truncate_logs(DIGEST, 3)
    assert store.read_metrics(DIGEST)["step"].to_list() == [0, 1, 2, 3]


HOLD = """
import sys, time
from ablate.store import Store
with Store(sys.argv[1]).lock(sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_excludes_and_dies_with_its_process(store: Store) -> None:
    holder = subprocess_of(HOLD, str(store.root), DIGEST)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=DIGEST), store.lock(DIGEST, blocking=False):
            pass
        with store.lock("another", blocking=False):
            pass
        holder.kill()
    (store.run_dir(DIGEST) / ".result.json.0000.tmp").write_bytes(b"{")
    with store.lock(DIGEST):
        assert [path.name for path in store.run_dir(DIGEST).iterdir()] == [".lock"]
    assert store.status(DIGEST) == "absent"


HAMMER = """
import itertools, sys
from ablate.store import Store
store, digest = Store(sys.argv[1]), sys.argv[2]
print("going", flush=True)
for n in itertools.count():
    document = {"schema": 1, "digest": digest, "status": "finished", "n": n, "fill": [n] * 2000}
    store.write_json(store.result_path(digest), document)
    store.append_metrics(digest, {"step": n, "loss": n})
"""


def test_sigkill_amid_writes_leaves_whole_documents_only(store: Store) -> None:
    for kill in range(6):
        writer = subprocess_of(HAMMER, str(store.root), DIGEST)
        assert writer.stdout is not None
        with writer:
            assert writer.stdout.readline() == b"going\n"
            time.sleep(0.05 + 0.013 * kill)
            os.kill(writer.pid, signal.SIGKILL)
        result = store.read_result(DIGEST)
        assert result is not None
        assert result["fill"] == [result["n"]] * 2000
        steps = store.read_metrics(DIGEST)["step"].to_list()
        assert steps[-1] in {result["n"], result["n"] - 1}


def test_importing_the_store_loads_no_heavy_library() -> None:
    code = "import sys, ablate.store; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "polars", "numpy", "pydantic"} & set(modules.stdout.split())
