"""A study under fire: python -m tests.ablate.soak [--minutes 20] [--runs 60]

Every few seconds a random process of `ablate run` (the command, a fork server or a worker) gets SIGKILL, SIGTERM or
SIGSTOP; a stopped one may wake again, after others have taken its runs over. Commands that ended are started again.
When time is up, the study must end complete, each run identical to that of an undisturbed control, with a store in
which `ablate check` finds no damage and no command that printed a traceback.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from store import Store
from tests.ablate.conftest import metrics_without_clock
from tests.ablate.toy import toy_study

ROOT = Path(__file__).parents[2]
NUMBERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
LATE_SECONDS = 450.0
"""Extra seconds allowed on a loaded machine until enough was hit."""
EXPECTED = {0, 1, 128 + signal.SIGTERM, -signal.SIGKILL, -signal.SIGTERM}
"""Statuses of disturbed commands: 1 where a worker was killed, -SIGTERM before Python could listen."""


class Command(Protocol):
    """An `ablate` that was started, such as a `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None:
        """Its exit status, negative for a signal, once it has ended."""

    def wait(self) -> int: ...


def servers_and_workers(store: Path) -> list[int]:
    """Fork servers and workers of commands on a store, known by a variable that they inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"ablate.running.forkserver" in words and str(store) in (folder / "environ").read_text():
                found.append(int(folder.name))
    return found


def outcome(store: Path) -> dict[str, Any]:
    """Final metrics and weights of the runs, by digest, without clocks."""
    found = Store(store)
    return {
        digest: (
            metrics_without_clock(found.metrics_path(digest)),
            (found.model_dir(digest) / "weights.safetensors").read_bytes(),
        )
        for digest in found.runs()
    }


@dataclass
class Soak:
    """`disturb` for a while, then `finish`."""

    study: Path
    store: Path
    chance: random.Random
    pause: tuple[float, float]
    """Seconds from shot to shot, at least and at most."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Which signal has hit what, and how often."""
    fewest: int = 10
    """Shots, at least."""
    stall_seconds: float = 10.0
    poll_seconds: float = 0.1
    execution: tuple[str, ...] = ("--workers", "2", "--checkpoint-seconds", "1")
    _commands: list[Command] = field(default_factory=list)
    _stopped: dict[int, float] = field(default_factory=dict)
    """When those that were stopped wake again."""
    _known: set[tuple[Path, int]] = field(default_factory=set)
    """States that were saved before the last shot."""
    _ending: set[int] = field(default_factory=set)
    """Those that were killed or asked to end."""
    _next: list[signal.Signals] = field(default_factory=list)
    """Signals of the next shots: every three shots use three different ones."""

    def disturb(self, seconds: float) -> None:
        deadline, next_shot = time.monotonic() + seconds, time.monotonic() + self.chance.uniform(*self.pause)
        while time.monotonic() < deadline or not self.has_enough():
            assert time.monotonic() < deadline + LATE_SECONDS, self.counts
            if not any(each.poll() is None and each.pid not in self._stopped for each in self._commands):
                self._commands.append(self.start(*self._asked(self.store)))
            self._wake(time.monotonic())
            if self.is_worth_a_shot() and time.monotonic() >= next_shot:
                self._shoot()
                next_shot = time.monotonic() + self.chance.uniform(*self.pause)
            time.sleep(self.poll_seconds)

    def finish(self, control: Path) -> None:
        """Complete the study, and one without disturbance, and compare them."""
        self._wake(float("inf"))
        for each in self._commands:
            assert each.wait() in EXPECTED, each.wait()
        for asked in (self._asked(self.store), self._asked(control), ("check", str(self.store))):
            assert self.start(*asked).wait() == 0, self.said.read_text()
        assert "Traceback" not in self.said.read_text(), self.said.read_text()
        assert outcome(self.store) == outcome(control)

    def has_enough(self) -> bool:
        """Whether the disturbance may end: enough shots, each signal among them, hit each kind of process."""
        signals, kinds = ({pair[place] for pair in self.counts} for place in (0, 1))
        return self.counts.total() >= self.fewest and len(signals) == len(NUMBERS) and len(kinds) == 2

    def is_worth_a_shot(self) -> bool:
        """Every other shot waits until something was saved: on a slow machine all would hit commands that start."""
        return self.counts.total() % 2 == 0 or bool(self.states() - self._known)

    def states(self) -> set[tuple[Path, int]]:
        """The saved states and the times of their saving."""
        found = set()
        for path in self.store.glob("*/state.pt"):
            with suppress(FileNotFoundError):  # its run has just ended
                found.add((path, path.stat().st_mtime_ns))
        return found

    def start(self, *arguments: str) -> Command:
        """`ablate` with these arguments."""
        with self.said.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "ablate", *arguments],
                cwd=ROOT,
                env=os.environ | {"SOAKED_STORE": str(self.store)},
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def victims(self) -> dict[int, str]:
        """Processes that may be hit, by process id."""
        workers = dict.fromkeys(servers_and_workers(self.store), "worker")
        return workers | {each.pid: "command" for each in self._commands if each.poll() is None}

    @property
    def said(self) -> Path:
        return self.study.parent / "said.txt"

    def _asked(self, store: Path) -> tuple[str, ...]:
        stall = ("--stall-timeout", str(self.stall_seconds))
        return ("run", str(self.study), "--store", str(store), *stall, *self.execution)

    def _shoot(self) -> None:
        victims = {pid: kind for pid, kind in self.victims().items() if pid not in self._stopped}
        if not victims:
            return
        self._next = self._next or self.chance.sample(NUMBERS, len(NUMBERS))
        victim, number = self.chance.choice(sorted(victims)), self._next[-1]
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(victim, number)
            self.counts[self._next.pop().name, victims[victim]] += 1
            if number == signal.SIGSTOP:
                self._stopped[victim] = time.monotonic() + self.chance.uniform(0.2, 3.0) * self.stall_seconds
            else:
                self._ending.add(victim)
        self._known = self.states()

    def _wake(self, now: float) -> None:
        for pid in [pid for pid, moment in self._stopped.items() if moment <= now]:
            del self._stopped[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def made_study(folder: Path, runs: int, steps: int) -> Path:
    study = toy_study(folder, "{post: {block.norm_placement: post}}", steps=steps)
    study.write_text(f"{study.read_text()}seeds: {runs // 2}\n")
    return study


def soak(folder: Path, minutes: float, runs: int, steps: int, pause: tuple[float, float], seed: int) -> Soak:
    """Raises AssertionError where the study did not survive it."""
    soaked = Soak(made_study(folder, runs, steps), folder / "soaked", random.Random(seed), pause)
    soaked.disturb(60.0 * minutes)
    soaked.finish(folder / "control")
    assert len(Store(soaked.store).runs()) == runs
    return soaked


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--steps", type=int, default=2000, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = soak(Path(name), asked.minutes, asked.runs, asked.steps, (5.0, 20.0), asked.seed)
    shots = ", ".join(f"{number} {kind} × {count}" for (number, kind), count in sorted(found.counts.items()))
    print(f"{asked.runs} runs identical to the control, after {shots}")
