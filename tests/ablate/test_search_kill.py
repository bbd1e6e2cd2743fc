"""Killing `ablate search` and its workers at any moment, with the real pool of processes and with databases."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from ablate.cli import main
from ablate.search.storage import open_storage
from ablate.store import Store
from tests.ablate.toy import toy_study

ROOT = Path(__file__).parents[2]
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
        [sys.executable, "-m", "ablate", *arguments(study, "--workers", "2", *more)],
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
            if b"ablate.forkserver" in words and str(study.parent) in (folder / "environ").read_text():
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if b"ablate.forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_workers_and_parents_cost_nothing_that_was_done(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = Store(study.parent / "runs")
    process = start(study)
    wait_until(lambda: list(store.root.glob("*/state.pt")) and workers(study), process)
    os.kill(workers(study)[0], signal.SIGKILL)
    wait_until(lambda: list(store.root.glob("*/result.json")), process)
    process.kill()
    _, said = process.communicate()
    assert "ended by SIGKILL: begun again" in said
    done = {path: path.stat().st_mtime_ns for path in store.root.glob("*/result.json")}
    begun = set(store.runs())
    assert len(done) < 4, "the kill came too late to test anything"

    assert main(arguments(study, "--engine", "inprocess")) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["trials"] == {"finished": 4}
    assert {path: path.stat().st_mtime_ns for path in done} == done
    trials = json.loads((store.root / "searches" / "toy-cpu" / "search.json").read_text())["trials"]
    runs = {digest for trial in trials for digest in trial["runs"]}
    assert begun <= runs == set(store.runs())  # what was running went on, and nothing was proposed in its place
    assert {store.status(digest) for digest in runs} == {"finished"}


def test_a_promoted_study_trains_the_best_with_fresh_seeds(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    quick = ["--engine", "inprocess", "--set", "budget.tokens=3840"]
    assert main(arguments(study, *quick, "--promote", "2")) == 0
    document = json.loads(capfd.readouterr().out)
    promoted, store = document["promoted"], Store(study.parent / "runs")
    searched = {store.read_run(d)["model"]["block"]["ffn"]["d_ff"] for b in document["best"] for d in b["runs"]}  # type: ignore[index]
    assert (
        main(["run", promoted, "--scale", "cpu", "--store", str(store.root), *quick, "--set", "seeds=2", "--json"]) == 0
    )
    arms = json.loads(capfd.readouterr().out)["runs"]
    assert {run["arm"] for run in arms} >= {f"trial_{best['number']}" for best in document["best"]}
    assert {store.read_run(run["digest"])["seed"] for run in arms} == {0, 1}  # type: ignore[index]
    sizes = {store.read_run(run["digest"])["model"]["block"]["ffn"]["d_ff"] for run in arms}  # type: ignore[index]
    assert searched <= sizes
    assert main(arguments(study, *quick)) == 0
    page = (store.root / "searches" / "toy-cpu" / "report.html").read_text()
    assert "With fresh seeds the loss of 2 promoted trials differed by" in page


@pytest.fixture
def postgres() -> Iterator[str]:
    """A real server on a socket in a folder of its own. It refuses to run as root, so root runs it as nobody."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("no PostgreSQL server (initdb, pg_ctl) on the PATH")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("the package psycopg is not installed")
    user = "nobody" if os.geteuid() == 0 else None

    def command(*words: str) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")

    with tempfile.TemporaryDirectory(prefix="ablate-pg-") as folder:
        if user:
            shutil.chown(folder, user)
        data = f"{folder}/data"
        command("initdb", "-D", data, "-U", "ablate", "-A", "trust")
        options = f"-k {folder} -c listen_addresses=''"
        command("pg_ctl", "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://ablate@/postgres?host={folder}"
        finally:
            command("pg_ctl", "-D", data, "-m", "immediate", "stop")


def test_a_search_in_postgresql_goes_on_after_a_kill(
    study: Path, postgres: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(study.parent / "runs")
    process = start(study, "--storage", postgres)
    wait_until(lambda: list(store.root.glob("*/result.json")), process)
    process.kill()
    process.communicate()
    assert main(arguments(study, "--engine", "inprocess", "--storage", postgres)) == 0
    assert json.loads(capfd.readouterr().out)["trials"] == {"finished": 4}


def test_a_search_through_the_grpc_proxy(study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    port = "50741"
    code = (
        "import sys; from optuna.storages import run_grpc_proxy_server, get_storage;"
        "run_grpc_proxy_server(get_storage(sys.argv[1]), host='localhost', port=int(sys.argv[2]))"
    )
    url = f"sqlite:///{study.parent}/proxy.db"
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, url, port], stderr=subprocess.DEVNULL)
    try:
        storage = open_storage(f"grpc://localhost:{port}", study.parent)
        storage.wait_server_ready(timeout=60)  # type: ignore[attr-defined]
        quick = ["--engine", "inprocess", "--set", "budget.tokens=3840", "--set", "search.trials=2"]
        assert main(arguments(study, *quick, "--storage", f"grpc://localhost:{port}")) == 0
    finally:
        server.kill()
        server.wait()
    assert json.loads(capfd.readouterr().out)["trials"] == {"finished": 2}
    assert [len(summary.datetime_start.isoformat()) > 0 for summary in optuna.get_all_study_summaries(url)] == [True]  # type: ignore[union-attr]


@pytest.mark.parametrize("url", ["nonsense", "postgresql+nodriver://x/y", "grpc://here"])
def test_a_storage_that_leads_nowhere_is_one_line(url: str, study: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(study, "--storage", url)) == 2
    assert capfd.readouterr().err.count("\n") == 1
