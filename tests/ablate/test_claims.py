"""Claims on a run: one writer at a time, on file systems without locks, whatever becomes of the writer."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ablate.running.request import scratch
from store import LockedError, LostClaimError, Store, claims, processes
from store.claims import FolderClaim, Watch, claimed
from store.documents.run import ClaimRecord, Count
from store.files import replacing
from tests.documents import metrics_of, result_of

DIGEST = "a1b2c3"

WRITER = """
import itertools, sys, time
from store import LostClaimError, Store, claims
from tests.documents import metrics_of, result_of
claims.BEAT_SECONDS = 0.02
store, digest = Store(sys.argv[1]), sys.argv[2]
written = 0
try:
    with store.claim(digest):
        for step in itertools.count():
            store.append_metrics(digest, metrics_of(step, loss=1.0))
            print("going", flush=True)
            time.sleep(0.001)
except LostClaimError as error:
    print("lost", error, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(claims, "POLL_SECONDS", 0.002)


def record_of(**changes: object) -> ClaimRecord:
    here = {"token": "x", "host": processes.here(), "pid": os.getpid(), "started": processes.started(os.getpid())}
    return ClaimRecord.model_validate({**here, "beat_seconds": 0.02, "beat": 1, **changes})


def leave(folder: Path, **changes: object) -> None:
    """A claim as its owner left it."""
    (folder / "claim").mkdir(parents=True)
    (folder / "claim" / "x.json").write_text(json.dumps({**record_of().model_dump(), **changes}))


def test_a_stopped_writer_is_replaced_and_writes_nothing_when_it_wakes(store: Store) -> None:
    command = [sys.executable, "-c", WRITER, str(store.root), DIGEST]
    writer = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert writer.stdout is not None
    with writer:
        assert writer.stdout.readline() == b"going\n"
        with pytest.raises(LockedError, match=DIGEST), store.claim(DIGEST, 0.3, blocking=False):
            pass
        os.kill(writer.pid, signal.SIGSTOP)
        begun = time.monotonic()
        with store.claim(DIGEST, stall_seconds=0.3):
            assert time.monotonic() - begun > 0.3
            store.truncate_logs(DIGEST, 0)
            os.kill(writer.pid, signal.SIGCONT)
            *_, last = writer.stdout.read().splitlines()
            assert last.startswith(b"lost ") and b"another process took over" in last
            assert writer.wait() == 0
            store.append_metrics(DIGEST, metrics_of(1, loss=2.0))
            store.write_result(result_of(DIGEST))
    assert store.read_metrics(DIGEST)["loss"].to_list() == [1.0, 2.0]


def test_an_owner_that_beats_is_never_replaced(store: Store) -> None:
    with store.claim(DIGEST):
        watch, deadline = Watch(store.run_dir(DIGEST)), time.monotonic() + 0.5
        while time.monotonic() < deadline:
            holder = watch.holder()
            assert holder is not None and not watch.is_gone(holder, stall_seconds=0.01)
            time.sleep(0.005)


def test_an_owner_tells_how_far_it_is_and_a_shorter_record_leaves_nothing_of_a_longer_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    with store.claim(DIGEST) as claim:
        for count in (Count(what="positions", done=1000, total=2000), Count(what="x", done=1, total=2), None):
            claim.count = count
            deadline = time.monotonic() + 5.0
            while (holder := Watch(store.run_dir(DIGEST)).holder()) is None or holder.count != count:
                assert holder is not None and holder.pid == os.getpid() and time.monotonic() < deadline


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [
        ({"pid": 2**22 + 1}, True),
        ({"started": "1"}, True),  # another process has its number now
        ({"host": ("another machine", "", "")}, False),
        ({"host": (*processes.here()[:2], "another container"), "pid": 2**22 + 1}, False),
        ({}, False),
        ({"beat_seconds": 1e18}, False),  # no process beats so seldom
    ],
)
def test_only_an_owner_that_surely_ended_is_replaced_at_once(
    changes: dict[str, object], at_once: bool, tmp_path: Path
) -> None:
    leave(tmp_path, **changes)
    begun = time.monotonic()
    stall = 60 if at_once else 0.25
    with claimed(tmp_path, stall_seconds=stall):
        assert (time.monotonic() - begun < stall) == at_once


def test_the_claim_of_a_machine_that_restarted_is_free_after_a_few_beats(tmp_path: Path) -> None:
    leave(tmp_path, host=(processes.here()[0], "an earlier start", ""))
    begun = time.monotonic()
    with claimed(tmp_path, stall_seconds=300.0):
        assert 0.02 * claims.BEATS < time.monotonic() - begun < 30.0


def test_a_machine_of_the_same_name_that_is_at_work_keeps_its_claim(tmp_path: Path) -> None:
    """Two machines from one image have one name, and started at different times."""
    leave(tmp_path, host=(processes.here()[0], "another start", ""))
    watch = Watch(tmp_path)
    for beat in range(20):
        (tmp_path / "claim" / "x.json").write_text(
            record_of(host=(processes.here()[0], "another start", ""), beat=beat).model_dump_json()
        )
        holder = watch.holder()
        assert holder is not None and not watch.is_gone(holder, stall_seconds=0.0)
        time.sleep(0.02)


@pytest.mark.parametrize("hours", [-24.0, 24.0])
def test_a_wall_clock_that_jumps_changes_no_claim(
    hours: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, host=("another machine", "", ""))
    watch, now = Watch(tmp_path), time.time
    watch.holder()
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours)
    holder = watch.holder()
    assert holder is not None and not watch.is_gone(holder, stall_seconds=1.0)
    with claimed(tmp_path / "own"), pytest.raises(LockedError), claimed(tmp_path / "own", blocking=False):
        pass


@pytest.mark.parametrize("stall_seconds", [300.0, 0.0])
def test_of_two_that_replace_a_dead_owner_one_succeeds(
    stall_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes when the first has renamed the dead owner's file and not yet written its own record. Only if
    the first stands still there for too long is it replaced, and finds that out when it goes on."""
    leave(tmp_path, pid=2**22 + 1)
    first, second, owners, write = FolderClaim(tmp_path), FolderClaim(tmp_path), [], Path.write_text
    waiting = threading.Thread(target=lambda: owners.append(acquired(second, stall_seconds)))

    def interrupted(path: Path, text: str, **settings: Any) -> int:
        if first.token in path.name:
            monkeypatch.setattr(Path, "write_text", write)
            waiting.start()
            waiting.join(0.5)
        return write(path, text, **settings)

    monkeypatch.setattr(Path, "write_text", interrupted)
    with nullcontext() if stall_seconds else pytest.raises(LockedError):
        first.acquire(stall_seconds, blocking=False)
        first.check()
        assert not owners
        first.release()
    waiting.join()
    assert owners == [second]
    second.check()
    second.release()
    assert not tmp_path.exists()


def acquired(claim: FolderClaim, stall_seconds: float) -> FolderClaim:
    claim.acquire(stall_seconds, blocking=True)
    return claim


BUSY = "import os; os.sched_setaffinity(0, {0}); os.nice({nice}); [None for _ in iter(int, 1)]"
HANGS = "import signal; signal.pause()"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell how long threads wait")
@pytest.mark.parametrize("hangs", [False, True], ids=["starved", "hanging"])
def test_time_in_which_an_owner_waited_for_a_processor_is_not_silence(
    hangs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The starved owner shares a processor with two that come first. One that hangs is silent all the time."""
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.0)
    cpu = str(min(os.sched_getaffinity(0)))
    programs = [HANGS] if hangs else [BUSY.replace("{nice}", each).replace("{0}", f"{{{cpu}}}") for each in "900"]
    running = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    try:
        owner = running[0].pid
        leave(tmp_path, pid=owner, started=processes.started(owner))
        while not hangs and cpu_seconds(owner) < 0.1:
            time.sleep(0.05)
        watch, begun = Watch(tmp_path), time.monotonic()
        watch.holder()
        # A wait is counted once it is over, which on a busy machine takes a while.
        while (passed := time.monotonic() - begun) < (3.0 if hangs or is_discounted(watch) else 60.0):
            time.sleep(0.05)
            watch.holder()
        assert is_discounted(watch) != hangs
        if hangs:
            assert watch.silent_seconds == pytest.approx(passed, abs=0.3 * passed)
    finally:
        for each in running:
            each.kill()
            each.wait()


def is_discounted(watch: Watch) -> bool:
    return watch.silent_seconds < 0.8 * watch.unchanged_seconds


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, by the times that the system counts in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_time_in_which_the_observer_slept_is_not_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(tmp_path, host=("another machine", "", ""))
    watch = Watch(tmp_path)
    watch.holder()
    now = time.monotonic() + 3600.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    holder = watch.holder()
    assert holder is not None and not watch.is_gone(holder, stall_seconds=300.0)


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has renames alone, as some mounts of NFS: no locks, no links, no exclusive creation."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    opened = os.open

    def plain_open(path: str, flags: int, *more: int, **keys: int) -> int:
        return refused() or 0 if flags & os.O_EXCL else opened(path, flags, *more, **keys)

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(fcntl, "lockf", refused)
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(os, "open", plain_open)


def with_lost_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that now and then loses the answer to a rename that succeeded: the repetition fails."""
    chance, rename = random.Random(0), Path.rename

    def renamed(self: Path, target: Path) -> Path:
        done = rename(self, target)
        if chance.random() < 0.3:
            raise FileNotFoundError(errno.ENOENT, "it is gone: your first request took it")
        return done

    monkeypatch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("answers", ["all", "some"])
def test_one_writer_at_a_time_without_locks(answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads add to a number in a file, the claim of a process that died before them."""
    without_locks(monkeypatch)
    if answers == "some":
        with_lost_answers(monkeypatch)
    leave(tmp_path, pid=2**22 + 1)
    number, failures = tmp_path / "number", []
    number.write_text("0")

    def add() -> None:
        try:
            for _ in range(5):
                with claimed(tmp_path):
                    before = int(number.read_text())
                    time.sleep(0.001)
                    number.write_text(str(before + 1))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert number.read_text() == "40"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_folder_that_cannot_be_made_is_an_error_and_not_waited_for() -> None:
    with pytest.raises(FileNotFoundError), claimed(Path("/proc/nowhere/run")):
        pass


def test_folders_of_killed_commands_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leave(tmp_path / "ablate-dead", pid=2**22 + 1)
    leave(tmp_path / "ablate-elsewhere", host=("another machine", "", ""))
    (tmp_path / "ablate-unknown").mkdir()
    (tmp_path / "ablate-file").touch()
    with scratch() as one, scratch() as other:
        left = {"ablate-elsewhere", "ablate-unknown", "ablate-file"}
        assert {path.name for path in tmp_path.iterdir()} == {*left, one.name, other.name}
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_a_claim_that_is_gone_is_lost_and_any_other_error_is_not(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = FolderClaim(tmp_path)
    claim.acquire(stall_seconds=1.0, blocking=False)

    def refused(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refused)
        with pytest.raises(LostClaimError):
            claim.check()
        number = errno.EIO
        with pytest.raises(OSError, match="Input/output error"):
            claim.check()
    claim.check()
    claim.release()


def test_what_fails_after_the_claim_was_lost_fails_for_that(store: Store) -> None:
    """Whoever takes over removes temporary files."""
    path = store.result_path(DIGEST)
    with pytest.raises(LostClaimError), store.claim(DIGEST), replacing(path) as temporary:
        next(store.run_dir(DIGEST).glob("claim/*.json")).unlink()
        temporary.write_text("{}")
        temporary.unlink()
    assert not path.exists()
