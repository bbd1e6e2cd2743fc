"""Step times for budgets in seconds: measured once as training will run, and kept in the store.

What is timed is a training step as a run counts it (`train_seconds`): reading its batch, forward, backward and update.
Validation, logging and saving are not counted, nor what a run's first steps cost more than later ones: compilation
above all. As many processes as there will be workers measure at once, each alternating between all models, and that is
repeated until there are several: how much the ratio of two models differs from process to process is the error of their
times.

The steps of a run are part of its identity, so a time that was measured stays: to measure again, remove
`calibration/<digest>.json` from the store. A model that is added later is measured against one whose time is known, and
its time is a multiple of that one's, so that the machine's state on another day is not in their ratio. The number of
workers is part of what was measured, the number of runs is not, so that seeds can be added.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import NamedTuple

from ablate.planning.adoption import adopt_times
from ablate.planning.budgets import StepTime, Workload
from ablate.planning.identity import canonical_model
from ablate.readable import now
from ablate.running.engines import Engine
from ablate.running.rehearsal import Rehearsal, Rehearsed, Timed
from ablate.running.rehearsing import CalibrationError
from ablate.store import Store
from ablate.store.documents import CalibrationDocument, CostProcess, JsonObject, RunData, RunDocument
from ablate.training.spec import timeless
from evals.costs.alternation import Effort, Pace
from evals.costs.clock import quartiles
from zoo.settings.identity import digest_of
from zoo.settings.registry import versions_of

UNSTEADY = 0.05
"""A standard error of ln(step time) from which on it is worth a word."""
ENDLESS = 10**9
"""Steps of a run that is only rehearsed."""
PACE = Pace(seconds=1.0, rounds=6)
"""Time and rounds of each model in each process."""


class Reference(NamedTuple):
    """A workload whose step time, of so many tokens, is known."""

    time: StepTime
    tokens: int


@dataclass(frozen=True)
class Calibration:
    """A clock (`ablate.planning.budgets.Clock`) that reads step times from the store and measures what is not there."""

    store: Store
    engine: Engine
    corpus: Callable[[], Path]
    say: Callable[[str], None]
    pace: Pace = field(default_factory=lambda: PACE)

    def __call__(self, work: Sequence[Workload]) -> list[StepTime]:
        """The step time of each workload. Raises CalibrationError."""
        digests = [digest_of(self.question(workload)) for workload in work]
        asked = dict(zip(digests, work, strict=True))
        missing = {digest: each for digest, each in asked.items() if self.store.read_calibration(digest) is None}
        adopt_times(self.store, {digest: (self.question(each), self.in_full(each)) for digest, each in missing.items()})
        missing = {digest: each for digest, each in missing.items() if self.store.read_calibration(digest) is None}
        if missing:
            known = next((digest for digest in digests if digest not in missing), None)
            self._measure(missing, {known: asked[known]} if known else {})
        return [self._known(digest) for digest in digests]

    def question(self, workload: Workload) -> JsonObject:
        """Identity of a measurement: model, training, numerics, plug-ins, device and concurrent workers."""
        return {**self.in_full(workload), **workload.identity}

    def in_full(self, workload: Workload) -> JsonObject:
        """The same with every default."""
        plugins = versions_of(workload.spec, workload.train)
        return {
            **({"plugins": dict(plugins)} if plugins else {}),
            "model": workload.spec.resolve(),
            "train": workload.train.model_dump(mode="json", exclude=timeless()),
            "numerics": workload.numerics.model_dump(),
            "device": self.engine.where,
            "workers": self.engine.at_once,
        }

    def _known(self, digest: str) -> StepTime:
        document = self.store.read_calibration(digest)
        if document is None:
            raise CalibrationError(f"{self.store.calibration_path(digest)} was removed meanwhile")
        return StepTime(document.step_seconds, digest, document.error, document.processes)

    def _measure(self, missing: Mapping[str, Workload], known: Mapping[str, Workload]) -> None:
        """known: a workload whose time is known, against which the others are measured, if there is one."""
        counts = {"model": len(missing), "worker": self.engine.at_once}
        models, workers = (f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
        self.say(f"Measuring the time of a training step: {models}, {workers} at once.")
        corpus = self.corpus().resolve()
        work = {**known, **missing}
        request = Rehearsal(
            arms=tuple(
                Rehearsed(name=digest, identity=_identity(digest, each, corpus.name), corpus=str(corpus))
                for digest, each in work.items()
            ),
            measure=None,
            effort=Effort(judged=self.pace, drawn=self.pace),
            store=str(self.store.absolute.root),
            order=secrets.randbits(32),
        )
        timed = self.engine.rehearse(request, alone=False)
        reference = next((Reference(self._known(name), each.train.tokens) for name, each in known.items()), None)
        for digest, workload in missing.items():
            if self.store.read_calibration(digest) is not None:
                continue  # another process was quicker: its time may be in use already
            document = self.timed(digest, workload, timed, reference)
            if document.error is not None and document.error > UNSTEADY:
                path = self.store.calibration_path(document.digest)
                self.say(
                    f"The time of a training step is uncertain by {100 * document.error:.0f} %."
                    f" If the machine was busy, remove {path}."
                )
            self.store.write_calibration(document)

    def timed(
        self, digest: str, workload: Workload, found: Timed, reference: Reference | None = None
    ) -> CalibrationDocument:
        """The document of a workload that these processes have measured, against the `reference` if there is one."""
        tokens = workload.train.tokens
        turns = [tokens * seconds for process in found.processes for seconds in process.points[0].seconds[digest]]
        per_token, error = _estimate(found.processes, digest, reference)
        return CalibrationDocument(
            digest=digest,
            model=workload.spec.resolve(),
            train=workload.train.model_dump(mode="json", exclude=timeless()),
            numerics=workload.numerics,
            device=found.environment.device,
            workers=self.engine.at_once,
            seconds_per_step=quartiles(turns),
            steps=len(turns),
            seconds=tokens * per_token,
            error=error,
            processes=len(found.processes),
            environment=found.environment,
            measured=now(),
        )


def _identity(digest: str, workload: Workload, corpus: str) -> RunDocument:
    """Identity of a run that is only timed."""
    return RunDocument(
        digest=digest,
        seed=0,
        model=canonical_model(workload.spec),
        train=workload.train.model_dump(mode="json"),
        steps=ENDLESS,
        data=RunData(digest=corpus),
        numerics=workload.numerics,
    )


def _estimate(processes: Sequence[CostProcess], digest: str, reference: Reference | None) -> tuple[float, float | None]:
    """Seconds per token, and the standard error of their logarithm against the other models.

    A process slows or speeds all its models alike, which is not in the ratio of two of them. So each process's mean
    over its k models is taken away, which leaves (k − 1)/k of the variance of each. With a reference it is the ratio to
    it that is measured, and its own error against the models that it was measured with comes on top.
    """
    logs = [{name: _log(process, name) for name in process.points[0].seconds} for process in processes]
    own = [each[digest] for each in logs]
    if reference is not None:
        ratios = [each[digest] - each[reference.time.calibration] for each in logs]
        known = reference.time.seconds / reference.tokens
        errors = _standard_error(ratios), reference.time.error
        return known * math.exp(fmean(ratios)), None if None in errors else math.hypot(*filter(None, errors))
    models = len(logs[0])
    if models == 1:
        return math.exp(fmean(own)), _standard_error(own)
    error = _standard_error([each[digest] - fmean(each.values()) for each in logs])
    return math.exp(fmean(own)), None if error is None else error * math.sqrt(models / (models - 1))


def _log(process: CostProcess, name: str) -> float:
    """ln of seconds per token: the median of turns without other programs, or of all where most had some."""
    (point,) = process.points
    quiet = [seconds for seconds in point.counted(name) if seconds is not None]
    turns = point.seconds[name]
    return math.log(median(quiet if len(quiet) >= len(turns) / 2 else turns))


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
