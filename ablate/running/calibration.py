"""Step times for budgets in seconds: measured once as training will run, and kept in the store.

What is timed is a training step as a run counts it (`train_seconds`): reading its batch, forward, backward and update.
Validation, logging and saving are not counted, nor what a run's first steps cost more than later ones: compilation
above all. As many processes as there will be workers measure at once, each alternating between all models.

The steps of a run are part of its identity, so a time that was measured stays: to measure again, remove
`calibration/<digest>.json` from the store. The number of workers is part of what was measured, the number of runs is
not, so that seeds can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ablate.planning.adoption import adopt_times
from ablate.planning.budgets import Workload
from ablate.planning.identity import canonical_model
from ablate.running.engines import Engine
from ablate.running.rehearsal import Effort
from ablate.running.rehearsing import CalibrationError
from ablate.store import Store
from ablate.store.documents import CalibrationDocument, Environment, JsonObject, RunData, RunDocument
from ablate.training.result import quartiles
from ablate.training.spec import timeless
from zoo.identity import digest_of, identity_of
from zoo.registry import versions_of

UNSTEADY = 0.25
"""Quartiles that lie further apart than this share of the median are worth a word."""
ENDLESS = 10**9
"""Steps of a run that is only rehearsed."""


class Calibration:
    """A clock (`ablate.planning.budgets.Clock`) that reads step times from the store and measures what is not there."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        corpus: Callable[[], Path],
        *,
        say: Callable[[str], None],
        effort: Effort | None = None,
    ) -> None:
        self.store, self.engine, self.corpus = store, engine, corpus
        self.say, self.effort = say, effort or Effort()

    def __call__(self, work: Sequence[Workload]) -> list[float]:
        """Median seconds per step of each workload. Raises CalibrationError."""
        digests = [digest_of(self.question(workload)) for workload in work]
        asked = dict(zip(digests, work, strict=True))
        missing = {digest: each for digest, each in asked.items() if self.store.read_calibration(digest) is None}
        adopt_times(self.store, {digest: (self.question(each), self.in_full(each)) for digest, each in missing.items()})
        missing = {digest: each for digest, each in missing.items() if self.store.read_calibration(digest) is None}
        if missing:
            self._measure(missing)
        return [self._known(digest) for digest in digests]

    def question(self, workload: Workload) -> JsonObject:
        """What names a measurement: model, training, numerics, plug-ins, device and workers at once."""
        train = {name: each for name, each in identity_of(workload.train).items() if name not in timeless()}
        told = {"model": workload.spec.identity(), "train": train, "numerics": identity_of(workload.numerics)}
        return {**self.in_full(workload), **told}

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

    def _known(self, digest: str) -> float:
        document = self.store.read_calibration(digest)
        if document is None:
            raise CalibrationError(f"{self.store.calibration_path(digest)} was removed meanwhile")
        return document.seconds_per_step.median

    def _measure(self, missing: Mapping[str, Workload]) -> None:
        models, workers = len(missing), self.engine.at_once
        self.say(f"Measuring the time of a training step: {_of(models, 'model')}, {_of(workers, 'worker')} at once.")
        corpus = self.corpus().resolve()
        identities = tuple(_identity(digest, workload, corpus.name) for digest, workload in missing.items())
        found = self.engine.rehearse(identities, str(corpus), self.effort)
        for (digest, workload), seconds in zip(missing.items(), found.seconds, strict=True):
            if self.store.read_calibration(digest) is not None:
                continue  # another process was quicker: its time may be in use already
            document = self.timed(digest, workload, seconds, found.environment)
            self._doubt(document)
            self.store.write_calibration(document)

    def timed(
        self, digest: str, workload: Workload, seconds: Sequence[float], environment: Environment
    ) -> CalibrationDocument:
        """The document of steps that took these seconds."""
        import polars as pl  # noqa: PLC0415 (takes long; few budgets are in seconds)

        return CalibrationDocument(
            digest=digest,
            model=workload.spec.resolve(),
            train=workload.train.model_dump(mode="json", exclude=timeless()),
            numerics=workload.numerics,
            device=environment.device,
            workers=self.engine.at_once,
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
