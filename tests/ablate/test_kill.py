"""Killing `ablate run` at any moment, running two at once, runs that fail: with the real pool of processes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

from ablate.cli import main
from ablate.machine.environment import SINGLE_THREADED
from store import Store
from tests.ablate.quick_soak import SHOTS
from tests.ablate.soak import outcome, servers_and_workers, soak

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
SETTINGS = ("--set", "budget.tokens=12800", "--set", "seeds=1", "--checkpoint-seconds", "0")


def arguments(study, store):
    return ["run", str(study), "--store", str(store), "--workers", "1", *SETTINGS]


def start(study, store, *more):
    """The command with its pool, in processes of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", *arguments(study, store), *more, "--json"],
        cwd=ROOT,
        env=os.environ | {"SOAKED_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go_on(study, store):
    """The same command to its end, in this process, which is quicker."""
    return main([*arguments(study, store), "--engine", "inprocess"])


def finish(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def undisturbed(study, tmp_path_factory):
    store = tmp_path_factory.mktemp("undisturbed") / "runs"
    assert go_on(study, store) == 0
    return outcome(store)


def wait_until(condition, seconds=300.0):
    """The default only ends what hangs: on a busy machine a command takes minutes to start."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_end_with_their_killed_parent_and_the_study_goes_on(study, undisturbed, tmp_path):
    store = tmp_path / "runs"
    process = start(study, store)
    wait_until(lambda: list(store.glob("*/state.pt")))
    assert servers_and_workers(store)
    process.kill()
    process.communicate()
    wait_until(lambda: not servers_and_workers(store), seconds=2.0)
    assert not list(store.glob("*/result.json")), "the kill came too late to test anything"
    assert go_on(study, store) == 0
    assert outcome(store) == undisturbed


def test_two_commands_at_once_do_not_train_a_run_twice(study, undisturbed, tmp_path):
    """One with its pool, and one in this process, which begins as soon as the other trains."""
    store = tmp_path / "runs"
    begun, ended = defaultdict(set), threading.Event()

    def watch():
        while not ended.wait(0.005):
            for path in store.glob("*/metrics.ndjson"):
                begun[path.parent.name].add(path.stat().st_ino)  # training begins by replacing this file

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        process = start(study, store)
        while not begun and process.poll() is None:
            time.sleep(0.01)
        assert go_on(study, store) == 0
        status, out, err = finish(process)
    finally:
        ended.set()
        watching.join()
    assert status == 0, err
    assert json.loads(out)["failed"] == 0  # one document and nothing else
    assert {len(files) for files in begun.values()} == {1}
    assert outcome(store) == undisturbed


@pytest.mark.slow
def test_a_failed_run_is_named_and_the_others_end(study, undisturbed, tmp_path, capfd):
    store = Store(tmp_path / "runs")
    broken, whole = sorted(undisturbed)
    store.run_dir(broken).mkdir(parents=True)
    store.state_path(broken).write_bytes(b"not a checkpoint")
    status = main([*arguments(study, store.root), "--json"])
    out, err = capfd.readouterr()
    assert status == 1
    document = json.loads(out)
    assert (document["trained"], document["failed"]) == (1, 1)
    run = next(run for run in document["runs"] if run["digest"] == broken)
    assert run["status"] == "failed"
    assert f"failed: {run['arm']}, seed {run['seed']}:" in err
    assert "Traceback" not in err
    assert "Traceback" in store.error_path(broken).read_text()
    assert store.status(whole) == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_saves_the_state_and_says_how_to_go_on(number, study, undisturbed, tmp_path):
    store = tmp_path / "runs"
    process = start(study, store)
    wait_until(lambda: list(store.glob("*/state.pt")))
    process.send_signal(number)
    status, out, err = finish(process)
    assert (status, out) == (128 + number, "")
    assert "Run the same command again to resume" in err
    assert "Traceback" not in err
    assert not servers_and_workers(store)
    assert go_on(study, store) == 0
    assert outcome(store) == undisturbed


@contextmanager
def raised_while_training(monkeypatch, number, usual):
    """A signal half-way through a run; `usual` is what this process does on it as a rule."""
    append, raised = Store.append_metrics, []

    def signalled(self, digest, *records):
        append(self, digest, *records)
        if records[-1].step >= 10 and not raised:
            raised.append(number)
            signal.raise_signal(number)

    before = signal.signal(number, usual)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "append_metrics", signalled)
        yield
    signal.signal(number, before)
    assert raised


@pytest.mark.parametrize(
    ("number", "usual"),
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGUSR1, signal.SIG_DFL)],
    ids=["Ctrl-C", "USR1"],
)
def test_a_command_that_trains_by_itself_saves_too(number, usual, study, trained, tmp_path, monkeypatch, capfd):
    store = Store(tmp_path / "runs")
    command = ["run", str(study), "--store", str(store.root), "--engine", "inprocess"]
    with raised_while_training(monkeypatch, number, usual):
        assert main(command) == 128 + number
    assert "Run the same command again to resume" in capfd.readouterr().err
    (begun,) = store.runs()
    assert store.state_path(begun).exists()
    assert "its state saved" in store.log_path(begun).read_text()
    assert main(command) == 0
    assert "resumed after step" in store.log_path(begun).read_text()
    assert outcome(store.root) == outcome(trained)


def test_under_nohup_a_closed_terminal_ends_nothing(study, trained, tmp_path, monkeypatch):
    with raised_while_training(monkeypatch, signal.SIGHUP, signal.SIG_IGN):
        assert main(["run", str(study), "--store", str(tmp_path / "runs"), "--engine", "inprocess"]) == 0
    assert outcome(tmp_path / "runs") == outcome(trained)


def each(pids, number):
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.slow
def test_a_stopped_worker_is_begun_again(study, undisturbed, tmp_path):
    store = tmp_path / "runs"
    process = start(study, store, "--stall-timeout", "10")
    wait_until(lambda: list(store.glob("*/state.pt")))
    each(servers_and_workers(store), signal.SIGSTOP)
    status, out, err = finish(process)
    assert (status, json.loads(out)["failed"]) == (0, 0), err
    assert outcome(store) == undisturbed


@pytest.mark.slow
def test_a_stopped_command_is_replaced_and_goes_on_when_it_wakes(study, undisturbed, tmp_path):
    store = tmp_path / "runs"
    process = start(study, store)
    wait_until(lambda: list(store.glob("*/state.pt")))
    stopped = [process.pid, *servers_and_workers(store)]
    each(stopped, signal.SIGSTOP)
    assert not list(store.glob("*/result.json")), "it stopped too late to test anything"
    begun = list(store.glob("*/metrics.ndjson"))
    status, out, err = finish(start(study, store, "--stall-timeout", "10"))
    assert (status, json.loads(out)["trained"]) == (0, 2), err
    inodes = [path.stat().st_ino for path in begun]
    each(stopped, signal.SIGCONT)
    status, out, err = finish(process)
    assert (status, json.loads(out)["failed"]) == (0, 0), err
    assert [path.stat().st_ino for path in begun] == inodes
    assert outcome(store) == undisturbed


@pytest.mark.slow
def test_random_signals(tmp_path):
    """At commands that train by themselves. In a process of its own, of which they are copies."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ablate.quick_soak", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | SINGLE_THREADED,
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shots"] == {"SIGKILL": SHOTS, "SIGTERM": SHOTS, "SIGSTOP": SHOTS}
    assert found["effects"]["resumed after step"] >= SHOTS


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_minutes_of_random_signals(tmp_path):
    """At commands, fork servers and workers. Twenty minutes of them: python -m tests.ablate.soak."""
    shots = soak(tmp_path, minutes=2.0, runs=6, steps=1500, pause=(2.0, 6.0), seed=0).counts
    assert shots.total() >= 10
    assert {number for number, _ in shots} == {"SIGKILL", "SIGTERM", "SIGSTOP"}
    assert {hit for _, hit in shots} == {"command", "worker"}
