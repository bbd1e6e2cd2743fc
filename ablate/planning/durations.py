"""Estimated duration of runs: training from its FLOPs and layers, later phases from earlier measurements."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import zoo
from ablate.machine.apart import near
from ablate.machine.numerics import Numerics
from ablate.machine.recent import BUSY, recently, slowdown, slowdown_of_figures
from ablate.planning.plan import ArmPlan, Plan
from ablate.readable import clock
from ablate.training.spec import TrainSpec, timeless
from evals.costs import peaks
from evals.costs.clock import Clock
from evals.costs.machine import Speed, training_seconds_per_layer, training_steps
from evals.costs.spec import MeasureSpec
from store import Store
from store.documents import EvalsDocument, JsonObject, MeasureDocument
from store.extensions import modules_of
from zoo.spec import ModelSpec

LOOKED_AT = 5
"""Number of stored measurements or evaluations from which a duration is estimated."""
BEGIN_SECONDS = 10.0
"""Assumed seconds before the first run and after the last: loading, reading text, writing the report."""
START_SECONDS = 5.0
"""Assumed seconds of a run besides its steps: start of its process, last validation, saving."""
EVALUATING_SECONDS = 5.0
"""Assumed seconds of evaluating a run, until one of the store has been evaluated."""
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
    """A line if other programs use this machine's processors, so that all takes longer; empty otherwise. Speeds that
    were measured while it was as busy have that in them: it is not counted twice."""
    slower, counted = slowdown(at_once), slowdown_of_figures()
    if slower < BUSY:
        return []
    busy = f"the machine is busy (load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores)"
    if counted >= BUSY and slower / counted < BUSY:
        return [f"{busy}, and was when its speed was measured: idle, it would be up to {counted:.2g} times as fast"]
    return [f"{busy}: expect up to {slower / counted:.2g} times as long"]


def _clock(seconds: float) -> str:
    return clock(max(1.0, seconds))


def duration(
    plans: Iterable[Plan], missing: Mapping[str, Sequence[str]], store: Store, speed: Speed, tuning: float = 0.0
) -> Duration:
    """Duration of the phases that runs lack (`missing`, by digest). tuning: seconds of the tuning runs."""
    training, measuring, evaluating, comparing, starting, unevaluated = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    unknown, plans = False, tuple(plans)
    for wing in modules_of(__name__):
        training -= wing.shared_seconds(plans, missing, store, speed)
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


# Training speed of this machine, to estimate the time that a plan's arms will take.

LONGEST_STEP = 0.5
"""Estimated seconds of a step above which none is timed: it takes too long, and matrix products dominate it anyway."""
_STEPS = 4


def speed_for(plans: Sequence[Plan], numerics: Numerics) -> Speed:
    """Measured speed of large products and of a layer's overhead, corrected by timing a few steps of each plan's
    baseline.

    Arithmetic alone predicts twice a narrow model's speed: the operations between its products move more bytes than the
    products do.
    """
    speed = machine_speed(numerics)
    tried = {arm.flops / arm.steps: _ratio(arm, speed, numerics) for arm in (plan.arms[0] for plan in plans)}
    return replace(speed, tried={flops: ratio for flops, ratio in tried.items() if ratio is not None})


def machine_speed(numerics: Numerics) -> Speed:
    """Speed of large products and overhead of a layer, measured now or within the last hour."""
    device, kind = numerics.device, numerics.torch_dtype
    return Speed(
        recently(f"FLOP/s of {numerics}", lambda: near(device, peaks.peak_flops_per_second, device, kind)),
        recently(f"seconds per layer of {numerics}", lambda: near(device, training_seconds_per_layer, device)),
    )


def _ratio(arm: ArmPlan, speed: Speed, numerics: Numerics) -> float | None:
    """Measured over estimated time of a step; None if no step is timed."""
    foretold = arm.estimated_seconds(speed) / arm.steps
    if arm.step_time is not None or arm.train.compile or foretold > LONGEST_STEP:
        return None
    model, train = json.dumps(arm.spec.dump()), arm.train.model_dump_json(exclude=timeless())
    # Keyed by digest: the stages of a study train the same model repeatedly.
    digest = hashlib.sha256("\n".join((model, train)).encode()).hexdigest()[:16]

    def measured() -> float:
        return near(numerics.device, _seconds_of, model, train, numerics)

    return recently(f"seconds of a step of {digest}, {numerics}", measured) / foretold


def _seconds_of(model: str, train: str, numerics: Numerics) -> float:
    """`step_seconds` of a model and settings in JSON, which another process can be sent."""
    return step_seconds(zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train), numerics)


def step_seconds(spec: ModelSpec, train: TrainSpec, numerics: Numerics, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of four steps (forward, backward, update) on random tokens. The minimum excludes warm-up
    and interference from other programs.

    Uses AdamW and cross-entropy whatever the study's optimizer and loss: training's own would load torch's compiler,
    which takes longer than the steps. Leaves the caller's random state untouched.
    """
    random, device = np.random.default_rng(0), torch.device(numerics.device)
    windows = random.integers(spec.vocab_size, size=(train.batch, train.context + 1))
    with torch.random.fork_rng():
        with device:
            model = zoo.Decoder(spec).train()
        batch = train.objective.batch(windows, spec.vocab_size, random, eos=0).to(numerics.device)

        def loss() -> Tensor:
            with numerics.autocast():
                logits = model(batch.tokens, **batch.given)
            return functional.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())

        return min(training_steps(model, loss, _STEPS, clock))
