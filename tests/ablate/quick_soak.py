"""The soak in seconds: python -m tests.ablate.quick_soak FOLDER

Its time goes into runs, not into starts: commands train by themselves (`--engine inprocess`), and are copies of this
process, which has loaded the libraries. They beat more often, so that a stopped one is replaced after a second. A shot
waits until somebody else has saved since the last one, so that each hits work, on a machine of any speed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import ablate.running.phases  # noqa: F401 (what copies would load)
import reports  # noqa: F401
from ablate.cli import main
from ablate.machine.numerics import enforce
from evals.costs import peaks
from evals.evaluations import load_imports
from store import Store, claims
from tests.ablate.conftest import measured_once
from tests.ablate.soak import NUMBERS, Soak, made_study

SHOTS = 1
"""Number of shots with each signal; the soaks of the slow suite have many."""
RUNS, STEPS = 2, 100


class Copy:
    """A command in a copy of this process."""

    def __init__(self, arguments: tuple[str, ...], said: Path) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=_carry_out, args=(arguments, said))
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0


def _carry_out(arguments: tuple[str, ...], said: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    sys.exit(main(arguments))


@dataclass
class QuickSoak(Soak):
    stall_seconds: float = 1.0
    poll_seconds: float = 0.01
    execution: tuple[str, ...] = ("--engine", "inprocess", "--checkpoint-seconds", "0")

    def has_enough(self) -> bool:
        return self.counts.total() == SHOTS * len(NUMBERS)

    def is_worth_a_shot(self) -> bool:
        """Whether a state was saved since the last shot; saves while a command that was hit is still ending do not
        count."""
        if any(each.poll() is None and each.pid in self._ending for each in self._commands):
            self._known = self.states()
        return bool(self.states() - self._known)

    def _wake(self, now: float) -> None:
        """Only when another has gone on with the work, or at the end."""
        if self.states() - self._known or now == float("inf"):
            super()._wake(now)

    def start(self, *arguments: str) -> Copy:
        return Copy(arguments, self.said)

    def victims(self) -> dict[int, str]:
        return {each.pid: "command" for each in self._commands if each.poll() is None}


def quick_soak(folder: Path) -> Soak:
    claims.BEAT_SECONDS = 0.1  # type: ignore[misc]
    peaks.peak_flops_per_second, numerics = measured_once, enforce("cpu", "float32")
    peaks.peak_flops_per_second(numerics.device, numerics.torch_dtype)  # here, so that copies know it
    soaked = QuickSoak(made_study(folder, RUNS, STEPS), folder / "soaked", random.Random(0), (0.01, 0.075))
    soaked.disturb(0.0)
    soaked.finish(folder / "control")
    return soaked


def effects(soaked: Soak) -> dict[str, int]:
    """Count the messages in the runs' logs that tell of the shots' effects."""
    store = Store(soaked.store)
    logs = "".join(store.log_path(digest).read_text() for digest in store.runs())
    return {said: logs.count(said) for said in ("resumed after step", "its state saved", "another process took over")}


if __name__ == "__main__":
    load_imports()  # what copies would load
    found = quick_soak(Path(sys.argv[1]))
    shots = {number.name: found.counts[number.name, "command"] for number in NUMBERS}
    print(json.dumps({"shots": shots, "effects": effects(found)}))
