"""Claims: one process at a time may write to a folder, on any file system that can rename; locks are not needed.

`claim/` in the folder holds one file, whose name is the token of its owner.

- Claiming a free folder renames a folder with the process's own file to `claim/`, which fails if `claim/` is not empty.
- The owner rewrites its file periodically: its heartbeat. Watchers time it by their own clocks, since clocks of
  machines differ, and count only time in which they were running themselves, and in which no thread of an owner on
  this machine waited for a processor: an owner that gets a quarter of one may be silent four times as long.
- An owner that ended on this machine, or was silent for too long, is replaced (if the machine seems to have restarted,
  a few missed beats are enough): the new owner renames the old file to its own token. Tokens are unique, so only one of
  several contenders succeeds. Until the new owner writes its record, the old record in the file is ignored.
- A replaced owner finds its file gone at its next check, before every write (`files.fenced`). A log is opened before
  that check, and the new owner replaces logs by new files, so what a stopped process writes after its check goes to an
  unlinked file.
- Releasing removes the owner's file.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from store import processes
from store.documents.run import ClaimRecord, Count
from store.files import StoreError, fenced, read_regular

PLACE = "claim"
STALL_SECONDS = 300.0
"""Default silence after which an owner counts as gone."""
BEAT_SECONDS = 2.0
RECORD_WIDTH = 512
"""Records are padded to this width, so that a short one fully overwrites a longer one."""
BEATS = 5
"""Least number of missed beats before a silent owner is replaced."""
POLL_SECONDS = 0.1
LONGEST_LOOK_SECONDS = 1.0
"""Most silence counted between two looks: in a longer gap the watcher itself was suspended."""
GONE = (errno.ENOENT, errno.ESTALE)
"""Errors of a file that was renamed or replaced; ESTALE is NFS's."""
TOO_LATE = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
"""Errors of a rename to a claim that is held, or into a folder that its owner has removed."""


class LockedError(StoreError):
    """Another process holds the folder."""


class LostClaimError(StoreError):
    """Another process has taken the folder over, because this one was suspended."""


class Watch:
    """A watch on the owner of a folder, and on the time since its last heartbeat."""

    def __init__(self, folder: Path, starting: int | None = None) -> None:
        """starting: the process that is to claim the folder, if it is free."""
        self._place, self._starting = folder / PLACE, starting
        self._seen: tuple[str, int] | None = None
        self._looked = time.monotonic()
        self.unchanged_seconds = 0.0
        """Time without a change of owner or beat."""
        self._pid = starting
        self._waits = processes.waits(starting)
        """Seconds that threads of the owner had waited for a processor at the last change."""

    def holder(self) -> ClaimRecord | None:
        """The current owner; None if the folder is free. Of a file that cannot be read yet, only the token is known."""
        found = _read(self._place)
        now, seen = time.monotonic(), (found.token, found.beat) if found else None
        passed, self._looked = now - self._looked, now
        same, self._seen = seen == self._seen, seen
        self.unchanged_seconds = self.unchanged_seconds + min(passed, LONGEST_LOOK_SECONDS) if same else 0.0
        if not same:
            self._pid = self._starting if found is None else found.pid if found.host == processes.here() else None
            self._waits = processes.waits(self._pid)
        return found

    @property
    def silent_seconds(self) -> float:
        """Time without a change of owner or beat, less the longest wait of a thread of the owner for a processor. A
        quarter always counts: what beats may hang beside threads that work."""
        if self.unchanged_seconds <= BEAT_SECONDS:  # most beats are not late, and looking at all threads takes time
            return self.unchanged_seconds
        waits = (wait - self._waits.get(thread, 0.0) for thread, wait in processes.waits(self._pid).items())
        return max(self.unchanged_seconds - max(waits, default=0.0), self.unchanged_seconds / 4)

    def is_gone(self, holder: ClaimRecord, stall_seconds: float) -> bool:
        """Whether the owner just seen has ended, or was silent for too long.

        A machine with this one's name but another boot is this one before a restart, or a running copy: a few missed
        beats tell which.
        """
        if processes.has_ended(holder.host, holder.pid, holder.started):
            return True
        return self.is_silent(holder, 0.0 if processes.is_of_another_start(holder.host) else stall_seconds)

    def is_silent(self, holder: ClaimRecord, stall_seconds: float) -> bool:
        return self.silent_seconds > max(stall_seconds, BEATS * holder.beat_seconds)


def last_beat(folder: Path | str) -> float:
    """Time of the last heartbeat of a folder's owner, in seconds since 1970; 0 if the folder is free."""
    place = f"{folder}/{PLACE}"
    if not os.access(place, os.F_OK):  # called for 100,000 runs: an exception takes four times as long
        return 0.0
    with suppress(FileNotFoundError), os.scandir(place) as entries:  # released meanwhile
        return max((entry.stat().st_mtime for entry in entries if entry.name.endswith(".json")), default=0.0)
    return 0.0


class FolderClaim:
    """This process's own claim on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._place = folder, folder / PLACE
        self.token = secrets.token_hex(8)
        self._path = self._place / f"{self.token}.json"
        self._beats = 0
        self.count: Count | None = None
        """The owner's progress, written with the next heartbeat."""
        self._released = threading.Event()

    def acquire(self, stall_seconds: float, blocking: bool) -> None:
        """Claim the folder. Raises LockedError if it is held and not `blocking`."""
        watch = Watch(self.folder)
        while not self._try(watch, stall_seconds):
            if not blocking:
                raise LockedError(f"{self.folder} is in use by another process")
            time.sleep(POLL_SECONDS)
        threading.Thread(target=self._beat, daemon=True).start()

    def check(self) -> None:
        """Raises LostClaimError if another process has taken over."""
        if not self._is_ours():
            raise LostClaimError(f"{self.folder}: another process took over after this one missed its heartbeats")

    def release(self) -> None:
        """Give the folder up. Removes `claim/` and the folder if they are empty then."""
        self._released.set()
        with suppress(FileNotFoundError):
            self._path.unlink()
        with suppress(OSError):  # claimed again already, or not empty
            self._place.rmdir()
            self.folder.rmdir()

    def _try(self, watch: Watch, stall_seconds: float) -> bool:
        holder = watch.holder()
        if holder is None:
            # The folder is free, unless another process is quicker.
            prepared = self._prepared()
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                prepared.mkdir()
                (prepared / self._path.name).write_text(self._record(), encoding="utf-8")
                prepared.rename(self._place)
            except OSError as error:
                shutil.rmtree(prepared, ignore_errors=True)
                if error.errno not in TOO_LATE:
                    raise
                return self._is_ours()  # over a network, the reply to a successful rename may be lost
            return True
        return watch.is_gone(holder, stall_seconds) and self._replace(holder)

    def _replace(self, holder: ClaimRecord) -> bool:
        """Take over; False if another process was quicker."""
        with suppress(FileNotFoundError):  # ours already if only the reply was lost
            (self._place / f"{holder.token}.json").rename(self._path)
        if not self._path.exists():
            return False
        prepared = self._prepared()
        prepared.write_text(self._record(), encoding="utf-8")
        with suppress(FileNotFoundError):  # replaced and released while this process was suspended
            prepared.replace(self._path)
        if [path.name for path in self._place.glob("*.json")] == [self._path.name]:
            return True
        for path in (prepared, self._path):  # replaced: the new file may lie beside the new owner's
            path.unlink(missing_ok=True)
        return False

    def _prepared(self) -> Path:
        """Temporary path outside `claim/`, which must be empty on release."""
        return self.folder / f".{PLACE}.{self.token}.tmp"

    def _record(self) -> str:
        pid = os.getpid()
        record = ClaimRecord(
            token=self.token,
            host=processes.here(),
            pid=pid,
            started=processes.started(pid),
            beat_seconds=BEAT_SECONDS,
            beat=self._beats,
            count=self.count,
        )
        return record.model_dump_json().ljust(RECORD_WIDTH) + "\n"

    def _is_ours(self) -> bool:
        try:
            return f'"{self.token}"' in self._path.read_text(encoding="utf-8")
        except OSError as error:
            if error.errno in GONE:
                return False
            raise

    def _beat(self) -> None:
        """Write heartbeats, in a thread of their own and in place: replacing the file would revive a lost claim."""
        while not self._released.wait(BEAT_SECONDS):
            self._beats += 1
            with suppress(OSError), self._path.open("r+", encoding="utf-8") as file:
                file.write(self._record())


@contextmanager
def claimed(
    folder: Path, stall_seconds: float = STALL_SECONDS, blocking: bool = True, *, writes: Path | None = None
) -> Iterator[FolderClaim]:
    """Hold a folder exclusively. An owner that died on this machine is replaced at once, a silent one after
    `stall_seconds`.

    writes: the path whose writes are fenced, if not the folder itself.

    Raises LockedError if not `blocking` and another process holds the folder; LostClaimError from the block, at its
    next write, if another has taken over meanwhile.
    """
    claim = FolderClaim(folder)
    claim.acquire(stall_seconds, blocking)
    try:
        with fenced(writes or folder, claim.check):
            yield claim
    except Exception:
        claim.check()  # a lost claim explains any other error
        raise
    finally:
        claim.release()


def _read(place: Path) -> ClaimRecord | None:
    """The record of a claim; None if the folder is free."""
    try:
        path = next((path for path in place.iterdir() if path.suffix == ".json"), None)
    except FileNotFoundError:
        return None
    if path is None:
        return None
    try:
        found = ClaimRecord.model_validate_json(read_regular(path))
    except (OSError, ValidationError):  # renamed meanwhile, or half-written
        return _unknown(path.stem)
    return found if found.token == path.stem else _unknown(path.stem)  # taken over, record not yet written


def _unknown(token: str) -> ClaimRecord:
    """Record of an owner whose token alone is known."""
    return ClaimRecord(token=token, host=("", "", ""), pid=1, started=None, beat_seconds=BEAT_SECONDS, beat=0)
