"""Step times for budgets in seconds: measured once as training will run, and kept in the store.

What is timed is a training step as a run counts it (`train_seconds`): reading its batch, forward, backward and update.
Validation, logging and saving are not counted, nor what a run's first steps cost more than later ones: compilation
above all. As many processes as there will be workers measure at once, each alternating between all models.

The steps of a run are part of its identity, so a time that was measured stays: to measure again, remove
`calibration/<digest>.json` from the store. The number of workers is part of what was measured, the number of runs is
not, so that seeds can be added.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import polars as pl

from ablate.machine.environment import describe
from ablate.planning.budgets import Workload
from ablate.planning.identity import SCHEMA, canonical_model, digest_of
from ablate.running.engines.local import environment_of_worker
from ablate.running.rehearsal import Effort, Rehearsal
from ablate.store import AblateError, Store
from ablate.store.documents import CalibrationDocument, JsonObject, RunData, RunDocument
from ablate.training.result import quartiles
from ablate.training.spec import timeless

UNSTEADY = 0.25
"""Quartiles that lie further apart than this share of the median are worth a word."""
ENDLESS = 10**9
"""Steps of a run that is only rehearsed."""


class CalibrationError(AblateError):
    """Steps could not be timed. The text is why."""


class Calibration:
    """A clock (`ablate.planning.budgets.Clock`) that reads step times from the store and measures what is not there."""

    def __init__(
        self,
        store: Store,
        slots: Sequence[Mapping[str, str]],
        corpus: Callable[[], Path],
        *,
        say: Callable[[str], None],
        effort: Effort | None = None,
    ) -> None:
        self.store, self.slots, self.corpus = store, slots, corpus
        self.say, self.effort = say, effort or Effort()

    def __call__(self, work: Sequence[Workload]) -> list[float]:
        """Median seconds per step of each workload. Raises CalibrationError."""
        digests = [digest_of(self.question(workload)) for workload in work]
        missing = {
            digest: workload
            for digest, workload in zip(digests, work, strict=True)
            if self.store.read_calibration(digest) is None
        }
        if missing:
            self._measure(missing)
        return [self._known(digest) for digest in digests]

    def question(self, workload: Workload) -> JsonObject:
        """What names a measurement: model, training, numerics, device and workers at once."""
        return {
            "schema": SCHEMA,
            "model": workload.spec.resolve(),
            "train": workload.train.model_dump(mode="json", exclude=timeless()),
            "numerics": workload.numerics.model_dump(),
            "device": describe(workload.numerics.device, threads=1).device,
            "workers": len(self.slots),
        }

    def _known(self, digest: str) -> float:
        document = self.store.read_calibration(digest)
        if document is None:
            raise CalibrationError(f"{self.store.calibration_path(digest)} was removed meanwhile")
        return document.seconds_per_step.median

    def _measure(self, missing: Mapping[str, Workload]) -> None:
        models, workers = len(missing), len(self.slots)
        self.say(f"Measuring the time of a training step: {_of(models, 'model')}, {_of(workers, 'worker')} at once.")
        corpus = self.corpus().resolve()
        identities = tuple(_identity(digest, workload, corpus.name) for digest, workload in missing.items())
        times = self._rehearse(identities, str(corpus))
        for (digest, workload), seconds in zip(missing.items(), times, strict=True):
            if self.store.read_calibration(digest) is not None:
                continue  # another process was quicker: its time may be in use already
            found = self.timed(digest, workload, seconds)
            self._doubt(found)
            self.store.write_calibration(found)

    def timed(self, digest: str, workload: Workload, seconds: Sequence[float]) -> CalibrationDocument:
        """The document of steps that took these seconds."""
        environment = describe(workload.numerics.device, threads=1)
        return CalibrationDocument(
            digest=digest,
            model=workload.spec.resolve(),
            train=workload.train.model_dump(mode="json", exclude=timeless()),
            numerics=workload.numerics,
            device=environment.device,
            workers=len(self.slots),
            seconds_per_step=quartiles(pl.Series(seconds)),
            steps=len(seconds),
            environment=environment,
            measured=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _doubt(self, found: CalibrationDocument) -> None:
        """Say so where steps took unlike times: the machine may have been busy, and what was measured stays."""
        steps = found.seconds_per_step
        if steps.q75 - steps.q25 > UNSTEADY * steps.median:
            path = self.store.calibration_path(found.digest)
            self.say(
                f"Half of the steps took {steps.q25:.3g} to {steps.q75:.3g} s. If the machine was busy, remove {path}."
            )

    def _rehearse(self, identities: tuple[RunDocument, ...], corpus: str) -> list[list[float]]:
        """The times of all slots together, for each identity."""
        with tempfile.TemporaryDirectory(prefix="ablate-") as name:
            requests = [
                Rehearsal(
                    identities=identities, corpus=corpus, scratch=f"{name}/{place}", first=place, effort=self.effort
                )
                for place in range(len(self.slots))
            ]
            with _processes(Path(name), requests, self.slots) as processes:
                for process in processes:
                    _expect(process)  # `ready`
                for process in processes:
                    _pipe(process.stdin).write("go\n")
                    _pipe(process.stdin).flush()
                answers = [json.loads(_expect(process)) for process in processes]
        return [[seconds for answer in answers for seconds in answer[i]] for i in range(len(identities))]


@contextmanager
def _processes(
    folder: Path, requests: Sequence[Rehearsal], slots: Sequence[Mapping[str, str]]
) -> Iterator[list[subprocess.Popen[str]]]:
    """One rehearsal per slot. They end with the block, however it ends."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for number, (request, variables) in enumerate(zip(requests, slots, strict=True)):
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


def _identity(digest: str, workload: Workload, corpus: str) -> RunDocument:
    """Of a run that will never be."""
    return RunDocument(
        digest=digest,
        seed=0,
        model=canonical_model(workload.spec),
        train=workload.train.model_dump(mode="json"),
        steps=ENDLESS,
        data=RunData(digest=corpus),
        numerics=workload.numerics,
    )


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
