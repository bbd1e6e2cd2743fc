"""Estimated duration of runs: training from its FLOPs and layers, later phases from earlier measurements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

from ablate.planning.plan import Plan
from ablate.readable import clock
from evals.costs.machine import Speed
from evals.costs.spec import MeasureSpec
from store import Store
from store.documents import EvalsDocument, JsonObject, MeasureDocument

LOOKED_AT = 5
"""Number of stored measurements or evaluations from which a duration is estimated."""
BEGIN_SECONDS = 10.0
"""Assumed seconds before the first run and after the last: loading, reading text, writing the report."""
START_SECONDS = 5.0
"""Assumed seconds of a run besides its steps: start of its process, last validation, saving."""
EVALUATING_SECONDS = 5.0
"""Assumed seconds of evaluating a run, until one of the store has been evaluated."""
BUSY = 1.5
"""Times as long from which a machine is called busy."""
PHASES_OF_A_POINT = 2
"""Prefill and decoding."""


@dataclass(frozen=True)
class Duration:
    """Seconds of all runs in sequence. evaluating: None if unknown; `unevaluated` is what is assumed then. comparing:
    time in which arms are timed against each other, while nothing else runs.
    starting: what runs take besides their steps. beginning: what the command takes besides its runs."""

    training: float
    measuring: float
    evaluating: float | None
    tuning: float = 0.0
    comparing: float = 0.0
    starting: float = 0.0
    beginning: float = 0.0
    unevaluated: float = 0.0

    def __str__(self) -> str:
        """`about 5:20 in all: 4:10 of training, 0:40 of measuring, 0:30 of starting`"""
        known = {what: seconds for what, seconds in self._parts.items() if seconds}
        text = ", ".join(f"{_clock(seconds)} of {what}" for what, seconds in known.items())
        if len(known) > 1:
            text = f"{_clock(self.total)} in all: {text}"
        return text and f"about {text}"

    @property
    def total(self) -> float:
        return sum(self._parts.values())

    @property
    def _parts(self) -> dict[str, float]:
        guessed = self.evaluating is None
        return {
            "tuning": self.tuning,
            "training": self.training,
            "measuring": self.measuring + self.comparing,
            "evaluation" + " (assumed)" * guessed: self.unevaluated if self.evaluating is None else self.evaluating,
            "starting": self.starting + self.beginning,
        }

    def document(self) -> JsonObject:
        """Seconds, in total and of each part. An unknown `evaluating` is null; the total has what is assumed."""
        return {
            "total": self.total,
            "tuning": self.tuning,
            "training": self.training,
            "measuring": self.measuring + self.comparing,
            "evaluating": self.evaluating,
            "starting": self.starting + self.beginning,
        }

    def __truediv__(self, at_once: float) -> Duration:
        """The duration with `at_once` concurrent runs; `comparing` and `beginning` stay as they are."""
        return replace(
            self,
            training=self.training / at_once,
            measuring=self.measuring / at_once,
            evaluating=None if self.evaluating is None else self.evaluating / at_once,
            tuning=self.tuning / at_once,
            starting=self.starting / at_once,
            unevaluated=self.unevaluated / at_once,
        )


def busy_line(at_once: int) -> list[str]:
    """A line if other programs use this machine's processors, so that all takes longer; empty otherwise."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    slower = (load + min(at_once, cores)) / cores
    if slower < BUSY:
        return []
    return [f"the machine is busy (load {load:.1f} on {cores} cores): expect up to {slower:.2g} times as long"]


def _clock(seconds: float) -> str:
    return clock(max(1.0, seconds))


def duration(
    plans: Iterable[Plan], missing: Mapping[str, Sequence[str]], store: Store, speed: Speed, tuning: float = 0.0
) -> Duration:
    """Duration of the phases that runs lack (`missing`, by digest). tuning: seconds of the tuning runs."""
    training, measuring, evaluating, comparing, starting, unevaluated = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    unknown = False
    for plan in plans:
        lacks = {phase: sum(phase in missing[run.digest] for run in plan.runs) for phase in ("measure", "evals")}
        for arm in plan.arms:
            training += arm.estimated_seconds(speed) * sum("train" in missing[run.digest] for run in arm.runs)
        if lacks["measure"]:
            comparing = max(comparing, plan.alternating_seconds)
            known = _taken(store.measurements, plan.measure_digest)
            measuring += lacks["measure"] * (known or least_seconds(plan.study.measure))
        if lacks["evals"]:
            taken = _taken(store.evaluations, plan.evals_digest)
            unknown |= taken is None
            evaluating += lacks["evals"] * (taken or 0.0)
            unevaluated += lacks["evals"] * (EVALUATING_SECONDS if taken is None else taken)
        starting += START_SECONDS * sum("train" in missing[run.digest] for run in plan.runs)
    beginning = BEGIN_SECONDS if any(missing.values()) else 0.0
    known = None if unknown else evaluating
    return Duration(training, measuring, known, tuning, comparing, starting, beginning, unevaluated if unknown else 0.0)


def _taken(read: Callable[[str], Iterable[MeasureDocument | EvalsDocument]], request: str | None) -> float | None:
    """Median seconds of the first `LOOKED_AT` stored documents; None if none is stored."""
    found = islice(read(request), LOOKED_AT) if request else ()
    known = [each.seconds for each in found if each.seconds is not None]
    return median(known) if known else None


def least_seconds(spec: MeasureSpec | None) -> float:
    """Lower bound on the seconds of measuring a run, from the spec's points."""
    if spec is None:
        return 0.0
    return PHASES_OF_A_POINT * len(spec.contexts) * len(spec.batches) * len(spec.caches) * spec.seconds
