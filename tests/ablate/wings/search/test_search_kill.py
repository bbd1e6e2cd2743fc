"""Killing `ablate search` and its workers at any moment, with the real pool of processes and with databases."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from ablate.cli import main
from ablate.wings.search.documents import SearchFolder
from ablate.wings.search.storage import open_storage
from store import Store
from tests.ablate.servers import grpc_proxy, postgresql
from tests.ablate.toy import toy_study

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[4]
SEARCH = """
search:
  space: {train.lr: {log: [1e-3, 1e-1]}, block.mixer.kv_heads: [1, 2], block.ffn.d_ff: {ratio: [1x, 4x]}}
  sampler: random
  trials: 4
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = toy_study(tmp_path, "{}", steps=200)
    path.write_text(path.read_text() + SEARCH)
    return path


def arguments(study: Path, *more: str) -> list[str]:
    store = str(study.parent / "runs")
    return ["search", str(study), "--scale", "cpu", "--store", store, "--checkpoint-seconds", "0", "--json", *more]


def start(study: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", *arguments(study, *more)],
        cwd=ROOT,
        env=os.environ | {"TEST_STORE": str(study.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(study: Path) -> list[int]:
    """Processes that train: the children of fork servers, known by a variable that they inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"ablate.running.forkserver" in words and str(study.parent) in (folder / "environ").read_text():
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if b"ablate.running.forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300  # only ends what hangs: on a busy machine a command takes minutes to start
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=["journal", *(pytest.param(other, marks=pytest.mark.slow) for other in ("postgresql", "grpc"))])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The arguments that name a storage, with its server running. Commands that share a search have a database too."""
    if request.param == "journal":
        yield []
    elif request.param == "postgresql":
        with postgresql() as url:
            yield ["--storage", url]
    else:
        with grpc_proxy(f"sqlite:///{tmp_path}/proxy.db", tmp_path) as url:
            yield ["--storage", url]


@pytest.mark.slow
def test_killed_workers_and_parents_cost_nothing_that_was_done(
    study: Path, storage: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(study.parent / "runs")
    process = start(study, "--workers", "2", *storage)
    wait_until(lambda: list(store.root.glob("*/state.pt")) and workers(study), process)
    os.kill(workers(study)[0], signal.SIGKILL)
    wait_until(lambda: list(store.root.glob("*/result.json")), process)
    process.kill()
    _, said = process.communicate()
    assert "ended by SIGKILL: restarted" in said
    done = times_of_results(store)
    begun = set(store.runs())
    assert len(done) < 4, "the kill came too late to test anything"

    assert main(arguments(study, "--engine", "inprocess", *storage)) == 0
    assert json.loads(capfd.readouterr().out)["trials"] == {"finished": 4}
    assert times_of_results(store).items() >= done.items()
    runs = runs_of_trials(store)
    assert begun <= runs == set(store.runs())  # what was running went on, and nothing was proposed in its place
    assert {store.status(digest) for digest in runs} == {"finished"}


@pytest.mark.slow
def test_commands_that_start_at_once_share_a_search(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Both find an empty database; one is killed, and what it left is done once."""
    store = Store(study.parent / "runs")
    with postgresql() as url:
        killed, other = (start(study, "--workers", "1", "--storage", url) for _ in range(2))
        wait_until(lambda: len(list(store.root.glob("*/run.json"))) == 2, killed)
        killed.kill()
        killed.communicate()
        out, said = other.communicate()
        assert other.returncode == 0, said
        done = times_of_results(store)
        assert json.loads(out)["trials"] == {"finished": len(done)}
        assert main(arguments(study, "--engine", "inprocess", "--storage", url)) == 0
    assert json.loads(capfd.readouterr().out)["trials"] == {"finished": 4}
    assert times_of_results(store).items() >= done.items()
    assert runs_of_trials(store) == set(store.runs())


def times_of_results(store: Store) -> dict[str, int]:
    """When each run was finished: a run that is trained again has another time."""
    return {path.parent.name: path.stat().st_mtime_ns for path in store.root.glob("*/result.json")}


def runs_of_trials(store: Store) -> set[str]:
    """With the base's, which is trained beside them, and those that confirm the best."""
    found = json.loads((store.root / "searches" / "toy-cpu" / "search.json").read_text())
    return {digest for each in (*found["trials"], found["base"], *found["confirmed"]) for digest in each["runs"]}


def test_the_dashboard_opens_on_the_journal(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="the package optuna-dashboard is not installed")
    assert main(arguments(study, "--engine", "inprocess", "--set", "budget.tokens=1280")) == 0
    journal = study.parent / "runs" / "searches" / "toy-cpu" / "journal.log"
    asked: dict[str, Any] = {"PATH_INFO": "/api/studies"}
    setup_testing_defaults(asked)
    said: list[str] = []
    app = dashboard.wsgi(JournalStorage(JournalFileBackend(str(journal))))
    body = app(asked, lambda status, *_: said.append(status))
    (known,) = json.loads(b"".join(body))["study_summaries"]
    assert said == ["200 OK"]
    assert known["study_name"].startswith("toy-cpu-")


@pytest.mark.slow
def test_a_promoted_study_trains_the_best_with_fresh_seeds(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["--engine", "inprocess", "--set", "budget.tokens=3840"]
    assert main(arguments(study, *quick, "--promote", "2")) == 0
    document = json.loads(capfd.readouterr().out)
    promoted, store = document["promoted"], Store(study.parent / "runs")
    searched = {store.read_run(d).model["block"]["ffn"]["d_ff"] for b in document["best"] for d in b["runs"]}  # type: ignore[union-attr, index]
    assert (
        main(["run", promoted, "--scale", "cpu", "--store", str(store.root), *quick, "--set", "seeds=2", "--json"]) == 0
    )
    arms = json.loads(capfd.readouterr().out)["runs"]
    assert {run["arm"] for run in arms} >= {f"trial_{best['number']}" for best in document["best"]}
    assert {store.read_run(run["digest"]).seed for run in arms} == {0, 1}  # type: ignore[union-attr, index]
    sizes = {store.read_run(run["digest"]).model["block"]["ffn"]["d_ff"] for run in arms}  # type: ignore[union-attr, index]
    assert searched <= sizes
    folder = store.root / "searches" / "toy-cpu"
    assert main(["report", str(folder)]) == 0
    assert capfd.readouterr().out.strip() == str(folder / "report.html")
    page = (folder / "report.html").read_text()
    (found,) = (trial for trial in document["best"])  # one objective, one best
    fresh = [run["digest"] for run in arms if run["arm"] == f"trial_{found['number']}"]
    losses = {store.read_result(digest).judging_loss for digest in fresh}  # type: ignore[union-attr, index]
    assert f"{statistics.fmean(losses):.4f}".rstrip("0") in page
    assert "loss: with fresh seeds 2 selected trials differ by" in page
    assert "The base, which was not selected, differs by" in page


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "postgresql+nodriver://me:se/cr@et@x/y",
        "postgresql+nodriver://x/y?user=me&password=secret",
        "grpc://me:secr@et@here",
    ],
)
def test_a_storage_that_leads_nowhere_is_one_line(url: str, study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(study, "--storage", url)) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "et@" not in error and "secret" not in error  # the password's end, or all of it


@pytest.mark.slow
def test_a_database_that_fails_amid_a_run_is_an_error_of_the_search(
    study: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Losses are reported while a run trains: the run is stopped with its state saved, and has no error."""
    database = tmp_path / "trials.db"
    open_storage(f"sqlite:///{database}", SearchFolder(tmp_path))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "CREATE TRIGGER fails BEFORE INSERT ON trial_intermediate_values BEGIN INSERT INTO gone VALUES (1); END"
        )
    assert main(arguments(study, "--engine", "inprocess", "--storage", f"sqlite:///{database}")) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == f"ablate: --storage sqlite:///{database}: (sqlite3.OperationalError) no such table: main.gone"
    store = Store(study.parent / "runs")
    (digest,) = store.runs()
    assert store.state_path(digest).exists() and not store.error_path(digest).exists()
    assert "Traceback" not in store.log_path(digest).read_text()
