"""What a computation depends on: files that it opens, lists, replaces or imports, and whether it asks anyone else.

Python tells its audit hooks of each (PEP 578), so that no file has to be declared and none is forgotten, but for those
that native libraries open by themselves.
"""

# Heard for every file that is opened: Path objects would cost more than the calls.
# ruff: noqa: PTH100, PTH112, PTH116, PTH120, PTH208

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ELSEWHERE = frozenset(
    {"socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen", "os.fork", "os.posix_spawn"}
)
"""Events after which an answer depends on more than files."""
LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Folders of installed packages, which `installed` stands for."""
IGNORED = (*LIBRARIES, "/proc/", "/sys/", "/dev/null", "/dev/urandom", "/dev/nvidia", "/dev/tty")
OURS = frozenset({"ablate", "evals", "reports", "zoo"})
"""Packages whose modules count wherever they are."""
ABSENT = "absent"


@dataclass
class Dependencies:
    """`seen` has the stamp of each path when it was last opened or listed; `written` are paths that were replaced or
    removed."""

    seen: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    asked_elsewhere: bool = False

    def stamps(self) -> dict[str, str] | None:
        """The stamp of every path, now; None where someone else changed one meanwhile, or was asked."""
        if self.asked_elsewhere:
            return None
        now = {path: stamp(path) for path in {*self.seen, *self.written, *_modules()}}
        own = self.written | {os.path.dirname(path) for path in self.written}
        unchanged = all(now[path] == before or path in own for path, before in self.seen.items())
        return now if unchanged else None

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note one audit event."""
        if event == "open":
            path, _, flags = arguments
            self._note(path, is_written=bool(flags & (os.O_WRONLY | os.O_RDWR)))
        elif event in ("os.listdir", "os.scandir"):
            self._note(arguments[0] or ".")
        elif event == "os.rename":
            self._note(arguments[1], is_written=True)
        elif event == "os.remove":
            self._note(arguments[0], is_written=True)
        elif event in ELSEWHERE:
            self.asked_elsewhere = True

    def _note(self, path: object, is_written: bool = False) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a number: the file was opened before, or is a pipe
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(IGNORED) or "__pycache__" in name:
            return
        if is_written:
            self.written.add(name)
        else:
            self.seen[name] = stamp(name)


def stamp(path: str) -> str:
    """What a file has another of once it was written to: its size and time. Of a folder, the names in it."""
    try:
        found = os.stat(path)
        if not os.path.isdir(path):
            return f"{found.st_size} {found.st_mtime_ns}"
        names = sorted(name for name in os.listdir(path) if not name.endswith(".tmp"))
    except OSError:
        return ABSENT
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:16]


def installed() -> list[object]:
    """What stands for Python and its installed packages: an installation changes the names in their folders."""
    return [sys.executable, sys.version, {path: stamp(path) for path in sorted(LIBRARIES)}]


def _modules() -> Iterator[str]:
    """The files of modules that were imported, but for those of installed packages that are not ours."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and (name.partition(".")[0] in OURS or not path.startswith(LIBRARIES)):
            yield os.path.abspath(path)


_watching: list[Dependencies] = []
_hooks: list[object] = []
_local = threading.local()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or getattr(_local, "is_hearing", False):
        return
    _local.is_hearing = True  # to stamp a folder is to list it, which is an event too
    try:
        for each in _watching:
            each.hear(event, arguments)
    finally:
        _local.is_hearing = False


@contextmanager
def watched() -> Iterator[Dependencies]:
    """Note what the block depends on."""
    if not _hooks:  # a hook cannot be taken back
        _hooks.append(_hook)
        sys.addaudithook(_hook)
    found = Dependencies()
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.remove(found)
