"""Claims: one process at a time may write to a folder, on any file system that can rename; locks are not needed.

`claim/` in the folder holds one file, whose name is the token of its owner.

- To claim a free folder is to rename a folder with one's own file to `claim/`, which fails where that is not empty.
- The owner writes to its file again and again, its heartbeat. Others watch it by their own clocks, since clocks of
  machines differ, and count only time in which they were awake themselves.
- An owner that ended on this machine, or that was silent for too long, is replaced (where the machine seems to have
  restarted, a few missed beats are enough): its file is renamed to one's own name. The old name is like no other, so of
  several that try one succeeds. Until the new owner's record is in the file, the old one's says nothing of it.
- An owner that was replaced finds its file gone as soon as it looks: before every write (`files.fenced`) and at every
  beat. A log is opened before its owner looks, and whoever takes over replaces logs by new files, so what a stopped
  process writes after it has looked ends in a file without a name.
- To release is to remove one's file.
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

from ablate.store import processes
from ablate.store.documents.claim import ClaimRecord, Count
from ablate.store.files import StoreError, fenced, read_regular

PLACE = "claim"
STALL_SECONDS = 300.0
"""Silence after which an owner counts as gone, unless somebody says otherwise."""
BEAT_SECONDS = 2.0
RECORD_WIDTH = 512
"""Records are padded, so that one written over a longer one leaves nothing of it."""
BEATS = 5
"""An owner that misses fewer beats is never replaced."""
POLL_SECONDS = 0.1
LONGEST_LOOK_SECONDS = 1.0
"""Between two looks, more than this was our own sleep."""
GONE = (errno.ENOENT, errno.ESTALE)
"""Errors of a file that was renamed or replaced; the second is NFS."""
TOO_LATE = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)
"""Errors of renaming to a claim that is held, or to a folder that its owner has removed."""


class LockedError(StoreError):
    """Another process holds the folder."""


class LostClaimError(StoreError):
    """Another process has taken the folder over, since this one stood still."""


class Watch:
    """A watch on the owner of a folder, and on the time since its last heartbeat."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / PLACE
        self._seen: tuple[str, int] | None = None
        self._looked = time.monotonic()
        self.silent_seconds = 0.0
        """Also of a folder that nobody holds."""

    def holder(self) -> ClaimRecord | None:
        """The owner now. A file that cannot be read yet is its owner's as far as its name says."""
        found = _read(self._place)
        now, seen = time.monotonic(), (found.token, found.beat) if found else None
        passed, self._looked = now - self._looked, now
        same, self._seen = seen == self._seen, seen
        self.silent_seconds = self.silent_seconds + min(passed, LONGEST_LOOK_SECONDS) if same else 0.0
        return found

    def is_gone(self, holder: ClaimRecord, stall_seconds: float) -> bool:
        """Whether the owner that was just seen has ended, or was silent for too long.

        A machine of this one's name that started at another time is this one, restarted, or a copy that is at work:
        a few missed beats tell.
        """
        if processes.has_ended(holder.host, holder.pid, holder.started):
            return True
        return self.is_silent(holder, 0.0 if processes.is_of_another_start(holder.host) else stall_seconds)

    def is_silent(self, holder: ClaimRecord, stall_seconds: float) -> bool:
        return self.silent_seconds > max(stall_seconds, BEATS * holder.beat_seconds)


def last_beat(folder: Path | str) -> float:
    """When the owner of a folder last wrote to its claim, in seconds since 1970; 0 where nobody holds it."""
    place = f"{folder}/{PLACE}"
    if not os.access(place, os.F_OK):  # asked of a hundred thousand runs: an exception takes four times as long
        return 0.0
    with suppress(FileNotFoundError), os.scandir(place) as entries:  # or released just now
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
        """Raises LockedError where the folder is held and this is not to wait."""
        watch = Watch(self.folder)
        while not self._try(watch, stall_seconds):
            if not blocking:
                raise LockedError(f"{self.folder} is being worked on by another process")
            time.sleep(POLL_SECONDS)
        threading.Thread(target=self._beat, daemon=True).start()

    def check(self) -> None:
        """Raises LostClaimError where another has taken over."""
        if not self._is_ours():
            raise LostClaimError(f"{self.folder}: another process has taken over, since this one stood still")

    def release(self) -> None:
        """Folders that are empty then go too."""
        self._released.set()
        with suppress(FileNotFoundError):
            self._path.unlink()
        with suppress(OSError):  # another's already, or not empty
            self._place.rmdir()
            self.folder.rmdir()

    def _try(self, watch: Watch, stall_seconds: float) -> bool:
        holder = watch.holder()
        if holder is None:
            # The folder is free, unless another is quicker.
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
                return self._is_ours()  # over a network the answer to a rename that succeeded may be lost
            return True
        return watch.is_gone(holder, stall_seconds) and self._replace(holder)

    def _replace(self, holder: ClaimRecord) -> bool:
        """Take over; False where another was quicker."""
        with suppress(FileNotFoundError):  # ours, where only the answer was lost
            (self._place / f"{holder.token}.json").rename(self._path)
        if not self._path.exists():
            return False
        prepared = self._prepared()
        prepared.write_text(self._record(), encoding="utf-8")
        with suppress(FileNotFoundError):  # replaced and released while this one stood still
            prepared.replace(self._path)
        if [path.name for path in self._place.glob("*.json")] == [self._path.name]:
            return True
        for path in (prepared, self._path):  # replaced, and perhaps put beside the new owner's file
            path.unlink(missing_ok=True)
        return False

    def _prepared(self) -> Path:
        """Not in `claim/`, which must be empty when it is released."""
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
        """Heartbeats in a thread of their own, written in place: replacing the file would bring back a lost claim."""
        while not self._released.wait(BEAT_SECONDS):
            self._beats += 1
            with suppress(OSError), self._path.open("r+", encoding="utf-8") as file:
                file.write(self._record())


@contextmanager
def claimed(
    folder: Path, stall_seconds: float = STALL_SECONDS, blocking: bool = True, *, writes: Path | None = None
) -> Iterator[FolderClaim]:
    """Hold a folder alone. An owner that died on this machine is replaced at once, a silent one after a while.

    writes: what the claim is for, if not the folder itself.

    Raises LockedError when not `blocking` and another holds it, LostClaimError from the block, at its next write, when
    another has taken over meanwhile.
    """
    claim = FolderClaim(folder)
    claim.acquire(stall_seconds, blocking)
    try:
        with fenced(writes or folder, claim.check):
            yield claim
    except Exception:
        claim.check()  # whatever went wrong after another had taken over, that is why
        raise
    finally:
        claim.release()


def _read(place: Path) -> ClaimRecord | None:
    """None where nobody holds the folder."""
    try:
        path = next((path for path in place.iterdir() if path.suffix == ".json"), None)
    except FileNotFoundError:
        return None
    if path is None:
        return None
    try:
        found = ClaimRecord.model_validate_json(read_regular(path))
    except (OSError, ValidationError):  # just renamed, or just being written
        return _unknown(path.stem)
    return found if found.token == path.stem else _unknown(path.stem)  # taken over, and not written yet


def _unknown(token: str) -> ClaimRecord:
    """An owner of which the name alone is known."""
    return ClaimRecord(token=token, host=("", "", ""), pid=1, started=None, beat_seconds=BEAT_SECONDS, beat=0)
