"""Timing arms against each other in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import ceil
from pathlib import Path
from typing import NamedTuple

from ablate.machine.environment import describe
from ablate.running.child_process import ChildProcess, start
from ablate.running.rehearsal import Rehearsal, Timed
from ablate.running.request import scratch
from evals.costs.spec import PROCESSES
from store import AblateError
from store.documents import CostProcess

FEWEST = 3
"""Minimum number of processes if they measure concurrently, as runs will train."""


class CalibrationError(AblateError):
    """Speeds could not be measured, for the reason in the message."""


def rehearse(request: Rehearsal, places: Sequence[Mapping[str, str]], *, alone: bool) -> Timed:
    """Measure in several processes, each with its own order of models. Raises CalibrationError.

    places: environment variables of each process that may run concurrently. alone: run `PROCESSES` processes one after
    another in the first place.
    """
    waves = [places[:1]] * PROCESSES if alone else [places] * ceil(FEWEST / len(places))
    found: list[CostProcess] = []
    with scratch() as folder, _processes(folder, request, [*chain.from_iterable(waves)]) as processes:
        for process in processes:
            process.expect()  # wait until its libraries are loaded: loading would disturb the others
        waiting = iter(processes)
        for wave in waves:
            working = [next(waiting) for _ in wave]
            for process in working:
                process.child.ask("go")
            found += [CostProcess.model_validate_json(process.expect()) for process in working]
    device = request.arms[0].identity.numerics.device
    return Timed(processes=tuple(found), environment=describe(device, threads=1))


@contextmanager
def _processes(folder: Path, request: Rehearsal, places: Sequence[Mapping[str, str]]) -> Iterator[list[_Process]]:
    """One rehearsal process in each place. They end with the block, however it ends."""
    processes: list[_Process] = []
    try:
        for number, variables in enumerate(places):
            path, log = folder / f"{number}.json", folder / f"{number}.log"
            own = request.model_copy(update={"order": request.order + number})
            path.write_text(own.to_json(), encoding="utf-8")
            with log.open("wb") as output:
                child = start("ablate.running.rehearsal", str(path), variables=variables, output=output)
            processes.append(_Process(child, log))
        yield processes
    finally:
        for process in processes:
            process.child.kill()


class _Process(NamedTuple):
    """A rehearsal process, which waits for a line to begin, and its log file."""

    child: ChildProcess
    log: Path

    def expect(self) -> str:
        """The next line of the process's answers. Raises CalibrationError if the process ends without one."""
        line = self.child.answers.readline().decode()
        if not line.endswith("\n"):
            words = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line for line in reversed(words) if line.strip()), "its process exited without a result")
            raise CalibrationError(f"speeds could not be measured: {last}")
        return line
