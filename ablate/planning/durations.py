"""Estimated duration of runs: training from its FLOPs and layers, later phases from earlier measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
PHASES_OF_A_POINT = 2
"""Prefill and decoding."""


@dataclass(frozen=True)
class Duration:
    """Seconds of all runs in sequence. evaluating: None if unknown. comparing: time in which arms are timed against
    each other, while nothing else runs."""

    training: float
    measuring: float
    evaluating: float | None
    tuning: float = 0.0
    comparing: float = 0.0

    def __str__(self) -> str:
        """`about 4:50 in all: 4:10 of training, 0:40 of measuring`"""
        parts = {"tuning": self.tuning, "training": self.training, "measuring": self.measuring + self.comparing}
        parts["evaluation"] = self.evaluating or 0.0
        known = {what: seconds for what, seconds in parts.items() if seconds}
        text = ", ".join(f"{_clock(seconds)} of {what}" for what, seconds in known.items())
        if len(known) > 1:
            text = f"{_clock(sum(known.values()))}{' in all' if self.evaluating is not None else ''}: {text}"
        if self.evaluating is not None:
            return text and f"about {text}"
        evaluation = "evaluation (time unknown until a run of this store has been evaluated)"
        return f"about {text}, and {evaluation}" if text else evaluation

    def document(self) -> JsonObject:
        """Seconds, in total and of each part. An unknown `evaluating` is null and left out of the total."""
        measuring = self.measuring + self.comparing
        known = {"tuning": self.tuning, "training": self.training, "measuring": measuring}
        total = sum(known.values()) + (self.evaluating or 0.0)
        return {"total": total, **known, "evaluating": self.evaluating}

    def __truediv__(self, at_once: float) -> Duration:
        """The duration with `at_once` concurrent runs; `comparing` stays as it is."""
        evaluating = None if self.evaluating is None else self.evaluating / at_once
        shared = (self.training / at_once, self.measuring / at_once, evaluating, self.tuning / at_once)
        return Duration(*shared, self.comparing)


def _clock(seconds: float) -> str:
    return clock(max(1.0, seconds))


def duration(
    plans: Iterable[Plan], missing: Mapping[str, Sequence[str]], store: Store, speed: Speed, tuning: float = 0.0
) -> Duration:
    """Duration of the phases that runs lack (`missing`, by digest). tuning: seconds of the tuning runs."""
    training, measuring, evaluating, comparing = 0.0, 0.0, 0.0, 0.0
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
    return Duration(training, measuring, None if unknown else evaluating, tuning, comparing)


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
