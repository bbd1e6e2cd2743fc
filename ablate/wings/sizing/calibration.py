"""Step times for budgets in seconds: measured once under the conditions of training, and kept in the store.

The timed interval is a training step as a run counts it (`train_seconds`): reading its batch, forward, backward and
update. Excluded are validation, logging, saving, and the extra cost of a run's first steps, mainly compilation. As many
processes as there will be workers measure concurrently, each alternating between all models; this is repeated until
there are at least three processes. The spread of the ratio of two models over the processes gives the error.

The number of steps is part of a run's identity, so a measured time is kept: to measure again, remove
`calibration/<digest>.json` from the store. A model added later is measured against one whose time is known, and gets a
multiple of that time, so that the machine's state on another day does not affect their ratio. The number of workers is
part of a measurement's identity; the number of runs is not, so that seeds can be added.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import NamedTuple

from ablate.data import DataError, prepare
from ablate.planning.identity import canonical_model
from ablate.planning.plan import StepTime, Workload
from ablate.readable import now
from ablate.running.context import RunContext
from ablate.running.engines import Engine
from ablate.running.progress import teller
from ablate.running.rehearsal import ENDLESS, CalibrationError, Rehearsal, Rehearsed, Timed
from ablate.study.study import Study
from ablate.training.spec import timeless
from evals.costs.alternation import Effort, Pace
from evals.costs.clock import quartiles
from store import Store
from store.documents import CalibrationDocument, CostProcess, JsonObject, RunData, RunDocument
from store.errors import ArgumentError
from zoo.settings.identity import digest_of

UNSTEADY = 0.05
"""Standard error of ln(step time) above which a warning is given."""
PACE = Pace(seconds=1.0, rounds=6)
"""Time and rounds of each model in each process."""


class Reference(NamedTuple):
    """A workload with known step time. tokens: tokens per step."""

    time: StepTime
    tokens: int


@dataclass(frozen=True)
class Calibration:
    """A `Clock` (`ablate.planning.plan`) that reads step times from the store and measures those it lacks."""

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
        if missing:
            known = next((digest for digest in digests if digest not in missing), None)
            self._measure(missing, {known: asked[known]} if known else {})
        return [self._known(digest) for digest in digests]

    def question(self, workload: Workload) -> JsonObject:
        """Identity of a measurement: model, training, numerics, plug-ins, device and concurrent workers."""
        return {"device": self.engine.where, "workers": self.engine.at_once, **workload.identity}

    def _known(self, digest: str) -> StepTime:
        document = self.store.read_calibration(digest)
        if document is None:
            raise CalibrationError(f"{self.store.calibration_path(digest)} was removed meanwhile")
        return StepTime(document.step_seconds, digest, document.error, document.processes)

    def _measure(self, missing: Mapping[str, Workload], known: Mapping[str, Workload]) -> None:
        """Measure missing step times. known: a workload of known time to measure the others against; may be empty."""
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
                continue  # another process stored a time first, which may be in use already
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
        """The document of a measured workload; its time is relative to the `reference`, if there is one."""
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


def clock(context: RunContext, study: Study) -> Calibration:
    """The clock of a study, which prepares its corpus if it has to measure."""
    if context.options.devices > 1:
        raise ArgumentError("devices", "must be 1 for a budget in seconds, as steps are timed on one device")

    def corpus() -> Path:
        try:
            return prepare(study.data, context.store.data_dir, study.folder).directory
        except DataError as error:
            raise study.error("data", str(error)) from error

    return Calibration(context.store, context.engine, corpus, say=teller(context.progress))


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
    """Seconds per token, and the standard error of its logarithm relative to the other models.

    A process's speed affects all its models alike and cancels in the ratio of two. So each process's mean over its k
    models is subtracted, which leaves (k − 1)/k of a model's variance; the error is scaled back by √(k/(k − 1)).
    With a reference, the ratio to the reference is measured, and the reference's own error is added in quadrature.
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
    """ln of seconds per token: median over turns undisturbed by other programs, or over all if fewer than half are."""
    (point,) = process.points
    quiet = [seconds for seconds in point.counted(name) if seconds is not None]
    turns = point.seconds[name]
    return math.log(median(quiet if len(quiet) >= len(turns) / 2 else turns))


def _standard_error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
