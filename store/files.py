"""Atomic writes: a file is written beside its target, flushed to the disk and renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from store.errors import AblateError

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system that has no locks."""


class StoreError(AblateError):
    """The store contains, or was given, invalid content."""


class IrregularFileError(OSError):
    """A device, a pipe or a folder where a file should be: reading it might never end."""

    def __str__(self) -> str:
        return f"{self.filename} is {self.strerror}"


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises IrregularFileError for other kinds of file, FileNotFoundError if there is none."""
    check_regular(path)
    with path.open("rb", buffering=0) as file:
        return file.readall()


def check_regular(path: Path) -> None:
    """Raise IrregularFileError for anything but a regular file, before it is opened."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise IrregularFileError(errno.EINVAL, "not a regular file", str(path))


FULL_BYTES = 2**20
"""A disk with less free space counts as full."""

_FENCES: dict[Path, Callable[[], None]] = {}


@contextmanager
def one_at_a_time(file: FileIO) -> Iterator[None]:
    """Hold an open file among all processes that ask to hold it. Where a file system has no locks nobody waits: there,
    only the owner of a claim may write (`store.claims`)."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            error.filename = error.filename or str(file.name)
            raise
    yield  # closing the file lets go of it


@contextmanager
def held(path: Path, blocking: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is missing, and stays. The system frees the lock of a holder that
    dies. Raises BlockingIOError if another holds it and not `blocking`, StoreError where there are no locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        check_regular(path)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if blocking else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            remedy = "this file system has no locks: use a store on one that has them (--store DIR)"
            raise StoreError(f"{path}: {error.strerror}: {remedy}") from error
        yield


@contextmanager
def fenced(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `check` just before any write to `folder`, or replacement of it, takes effect."""
    name = folder.absolute()
    _FENCES[name] = check
    try:
        yield
    finally:
        del _FENCES[name]


def pass_fence(path: Path) -> None:
    """Check the fence before a write to `path` takes effect."""
    for place in (path.absolute(), path.parent.absolute()):
        if check := _FENCES.get(place):
            check()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file or a folder; on success it takes the place of `path`.

    A file replaces another atomically. A folder does not: the old one is removed just before,
    so a folder counts as complete only once a document written after it says so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        _share(temporary)
        sync_tree(temporary)
        pass_fence(path)
        if temporary.is_dir() and path.exists():
            _remove_tree(path)
        temporary.replace(path)
        _sync(path.parent)
    except BaseException as error:
        # Libraries report a full disk in words of their own, such as torch's `unexpected pos 576 vs 534`.
        is_clear = not isinstance(error, Exception) or isinstance(error, OSError | AblateError)
        full = not is_clear and shutil.disk_usage(path.parent).free < FULL_BYTES
        with suppress(OSError):  # report the first error
            remove(temporary)
        if isinstance(error, OSError) and str(error.filename or temporary) == str(temporary):
            error.filename = str(path)  # the path that users know
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def write_text(path: Path, text: str) -> Path:
    """Write a text atomically, and return its path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def remove_leftovers(folder: Path, start: str = ".") -> None:
    """Remove the temporary files of killed processes. No other process may be writing there."""
    for leftover in folder.glob(f"{start}*.tmp"):
        remove(leftover)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir():
        _remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except OSError as error:
        error.filename = str(path)  # rmtree names only the entry inside
        raise


def _share(written: Path) -> None:
    """Give files that a library made private, as safetensors does, the permissions that the umask allows."""
    files = [path for path in (written, *written.rglob("*")) if path.is_file()]
    private = [path for path in files if not path.stat().st_mode & 0o066]
    if not private:
        return
    probe = written.with_name(f"{written.name}.mode.tmp")
    probe.touch()
    try:
        for path in private:
            path.chmod(stat.S_IMODE(probe.stat().st_mode))
    finally:
        probe.unlink()


def sync_tree(path: Path) -> None:
    """Flush a file, or a folder with all its files, to the disk."""
    if path.is_dir():
        for child in path.iterdir():
            sync_tree(child)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(descriptor)
