"""Timing training steps in as many processes at once as there will be workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ablate.machine.environment import describe, environment_of_worker
from ablate.running.rehearsal import Effort, Rehearsal, Timed
from ablate.running.scratch import scratch
from ablate.store import AblateError
from ablate.store.documents import RunDocument


class CalibrationError(AblateError):
    """Steps could not be timed. The text is why."""


def rehearse(
    identities: Sequence[RunDocument], corpus: str, effort: Effort, places: Sequence[Mapping[str, str]]
) -> Timed:
    """The times of all processes together. places: the environment variables of each. Raises CalibrationError."""
    with scratch() as folder:
        requests = [
            Rehearsal(
                identities=tuple(identities),
                corpus=corpus,
                scratch=str(folder / str(place)),
                first=place,
                effort=effort,
            )
            for place in range(len(places))
        ]
        with _processes(folder, requests, places) as processes:
            for process in processes:
                _expect(process)  # `ready`
            for process in processes:
                _pipe(process.stdin).write("go\n")
                _pipe(process.stdin).flush()
            answers = [json.loads(_expect(process)) for process in processes]
    seconds = [[each for answer in answers for each in answer[i]] for i in range(len(identities))]
    return Timed(seconds=seconds, environment=describe(identities[0].numerics.device, threads=1))


@contextmanager
def _processes(
    folder: Path, requests: Sequence[Rehearsal], places: Sequence[Mapping[str, str]]
) -> Iterator[list[subprocess.Popen[str]]]:
    """One rehearsal in each place. They end with the block, however it ends."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for number, (request, variables) in enumerate(zip(requests, places, strict=True)):
            path = folder / f"{number}.json"
            path.write_text(request.to_json(), encoding="utf-8")
            with path.with_suffix(".log").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "ablate.running.rehearsal", str(path)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        env=environment_of_worker(variables),
                    )
                )
        yield processes
    except _NoAnswerError as error:
        words = (folder / f"{processes.index(error.process)}.log").read_text(encoding="utf-8", errors="replace")
        last = next((line for line in reversed(words.splitlines()) if line.strip()), "its process ended")
        raise CalibrationError(f"the time of a training step could not be measured: {last}") from error
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class _NoAnswerError(Exception):
    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__("a process ended without an answer")
        self.process = process


def _expect(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints."""
    line = _pipe(process.stdout).readline()
    if not line.endswith("\n"):
        raise _NoAnswerError(process)
    return line


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the process has no pipe")
    return pipe
