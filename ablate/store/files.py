"""Files that appear whole or not at all: written beside their place, flushed to the disk and renamed."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ablate.errors import AblateError


class StoreError(AblateError):
    """The store holds, or was given, something that it must not."""


class IrregularFileError(OSError):
    """A device, a pipe or a folder where a file should be: reading it might never end."""


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises IrregularFileError where it is none, FileNotFoundError where there is nothing."""
    check_regular(path)
    with path.open("rb", buffering=0) as file:
        return file.readall()


def check_regular(path: Path) -> None:
    """Raise IrregularFileError for what is no regular file, before it is opened."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise IrregularFileError(f"{path} is not a regular file")


FULL_BYTES = 2**20
"""A disk with less free space is full."""

_FENCES: dict[Path, Callable[[], None]] = {}


@contextmanager
def fenced(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Whatever is written to `folder` or in its place passes `check` just before it takes effect."""
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

    A file replaces another atomically. A folder takes the place of one that is removed just
    before, so a folder counts only once a document written after it says so.
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
        # Libraries have words of their own for a full disk, such as torch's `unexpected pos 576 vs 534`.
        is_clear = not isinstance(error, Exception) or isinstance(error, OSError | AblateError)
        full = not is_clear and shutil.disk_usage(path.parent).free < FULL_BYTES
        with suppress(OSError):  # what went wrong is told: the first error
            remove(temporary)
        if isinstance(error, OSError) and str(error.filename or temporary) == str(temporary):
            error.filename = str(path)  # the file that people know
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def write_text(path: Path, text: str) -> Path:
    """Write a whole text, and return its path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write whole texts, once every one has a place: a mistaken path leaves nothing written."""
    for path in texts:
        # A folder may be there, or a file in the place of its folder.
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(above))
    for path, text in texts.items():
        write_text(path, text)


def move(source: Path, target: Path) -> None:
    """Move a file or a folder to a place where nothing is, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        sync_tree(source)
        source.rename(target)  # fails where somebody else was quicker
        return
    with replacing(target) as temporary:
        shutil.move(source, temporary)


def remove_leftovers(folder: Path, start: str = ".") -> None:
    """Remove the temporary files of killed processes. Nobody else may be writing there."""
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
        error.filename = str(path)  # it names what is inside, without a folder
        raise


def _share(written: Path) -> None:
    """Let others read what a library keeps to its user, as safetensors does: as far as the umask allows."""
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
    finally:
        os.close(descriptor)
