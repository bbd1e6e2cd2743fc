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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.store import Store
from tests.ablate.conftest import metrics_without_clock
from tests.ablate.toy import toy_study

ROOT = Path(__file__).parents[2]
NUMBERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
STALL_SECONDS = 10.0
EXPECTED = {0, 1, 128 + signal.SIGTERM, -signal.SIGKILL, -signal.SIGTERM}
"""Statuses of disturbed commands: 1 where a worker was killed, -SIGTERM before Python could listen."""


def command(study: Path, store: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "ablate", "run", str(study), "--store", str(store), "--workers", "2", *more]


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
    """What runs ended with, without clocks: metrics and weights by digest."""
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
    """`disturb` until the time is up, then `finish`."""

    study: Path
    store: Path
    chance: random.Random
    pause: tuple[float, float] = (5.0, 20.0)
    counts: dict[str, int] = field(default_factory=dict)
    _commands: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _stopped: dict[int, float] = field(default_factory=dict)
    """When those that were stopped wake again."""

    def disturb(self, seconds: float) -> None:
        deadline, next_shot = time.monotonic() + seconds, time.monotonic() + self.chance.uniform(*self.pause)
        while time.monotonic() < deadline:
            if not any(each.poll() is None and each.pid not in self._stopped for each in self._commands):
                self._start()
            self._wake(time.monotonic())
            if time.monotonic() >= next_shot:
                self._shoot()
                next_shot = time.monotonic() + self.chance.uniform(*self.pause)
            time.sleep(0.1)

    def finish(self) -> None:
        self._wake(float("inf"))
        for each in self._commands:
            assert each.wait() in EXPECTED, each.returncode
        more = ("--checkpoint-seconds", "1", "--stall-timeout", str(STALL_SECONDS))
        subprocess.run(command(self.study, self.store, *more), cwd=ROOT, check=True)
        said = (self.store.parent / "said.txt").read_text()
        assert "Traceback" not in said, said

    def _start(self) -> None:
        more = ("--checkpoint-seconds", "1", "--stall-timeout", str(STALL_SECONDS))
        with (self.store.parent / "said.txt").open("ab") as said:
            self._commands.append(
                subprocess.Popen(
                    command(self.study, self.store, *more),
                    cwd=ROOT,
                    env=os.environ | {"SOAKED_STORE": str(self.store)},
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                )
            )

    def _shoot(self) -> None:
        commands = [each.pid for each in self._commands if each.poll() is None]
        victims = [pid for pid in (*commands, *servers_and_workers(self.store)) if pid not in self._stopped]
        if not victims:
            return
        victim, number = self.chance.choice(victims), self.chance.choice(NUMBERS)
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(victim, number)
            kind = "command" if victim in commands else "worker"
            self.counts[f"{number.name} {kind}"] = self.counts.get(f"{number.name} {kind}", 0) + 1
            if number == signal.SIGSTOP:
                self._stopped[victim] = time.monotonic() + self.chance.uniform(0.2, 3.0) * STALL_SECONDS

    def _wake(self, now: float) -> None:
        for pid in [pid for pid, moment in self._stopped.items() if moment <= now]:
            del self._stopped[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def soak(folder: Path, minutes: float, runs: int, steps: int, pause: tuple[float, float], seed: int) -> dict[str, int]:
    """How often what was shot at. Raises AssertionError where the study did not survive it."""
    study = toy_study(folder, "{post: {block.norm_placement: post}}", steps=steps)
    study.write_text(f"{study.read_text()}seeds: {runs // 2}\n")
    control = folder / "control" / "runs"
    subprocess.run(command(study, control), cwd=ROOT, check=True)
    soaked = Soak(study, folder / "soaked" / "runs", random.Random(seed), pause)
    soaked.store.parent.mkdir()
    soaked.disturb(60.0 * minutes)
    soaked.finish()
    assert outcome(soaked.store) == outcome(control)
    assert len(outcome(control)) == runs
    subprocess.run([sys.executable, "-m", "ablate", "check", str(soaked.store)], cwd=ROOT, check=True)
    return soaked.counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--steps", type=int, default=2000, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shots = soak(Path(name), asked.minutes, asked.runs, asked.steps, (5.0, 20.0), asked.seed)
    print(f"{asked.runs} runs identical to the control, after {shots}")
