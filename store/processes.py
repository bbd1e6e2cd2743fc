"""Identification of processes across machines and restarts, and whether they have ended."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

STATE, STARTED = 0, 19
"""Positions of fields in /proc/<pid>/stat, counted after the program's name."""
ENDED = "ZX"
"""States of an ended process: zombie or dead."""


@cache
def here() -> tuple[str, str, str]:
    """This machine, its boot id, and its PID namespace: containers have their own."""
    machine = f"{platform.node()} {_line('/etc/machine-id')}".strip()
    with suppress(OSError):
        return machine, _line("/proc/sys/kernel/random/boot_id"), str(Path("/proc/self/ns/pid").readlink())
    return machine, "", ""


def started(pid: int) -> str | None:
    """Start time of a process, in clock ticks since boot; None if unknown."""
    found = _stat(pid)
    return found[STARTED] if found else None


def group(pid: int) -> int | None:
    """The process group of a process on this machine; None if there is no such process."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def is_of_another_start(where: tuple[str, str, str]) -> bool:
    """Whether `where` has this machine's name and another boot id: this machine before a restart, or another one cloned
    from the same image."""
    (machine, boot, _), (our_machine, our_boot, _) = where, here()
    return machine == our_machine and boot != our_boot


def has_ended(where: tuple[str, str, str], pid: int, since: str | None) -> bool:
    """Whether a process that began at `since` is known to have ended; False on other machines, boots and namespaces."""
    if where != here():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        pass
    found = _stat(pid)
    return found is not None and (found[STATE] in ENDED or since not in (None, found[STARTED]))


def waits(pid: int | None) -> dict[str, float]:
    """Seconds for which each thread of a process, ready to run, waited for a processor; empty where it is not known."""
    found = {}
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if (line := _line(str(thread / "schedstat"))) and len(times := line.split()) > 1:
                found[thread.name] = int(times[1]) / 1e9
    return found


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
