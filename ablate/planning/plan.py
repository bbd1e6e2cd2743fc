"""Plan of a study: its arms, their runs, and their costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from statistics import fmean
from typing import NamedTuple

from ablate.data import DataIdentity, DataSource
from ablate.planning.identity import RunPlan, request_digest
from ablate.study.arms import Arm
from ablate.study.study import Study
from ablate.training.spec import TrainSpec, timeless
from evals.costs.machine import Speed
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from store.documents import JsonObject, Length, RunNumerics
from zoo.costs import Cost
from zoo.settings.identity import identity_of
from zoo.settings.registry import versions_of
from zoo.spec import ModelSpec

# Training cost, and the number of steps that a budget pays for. Pure arithmetic.


@dataclass(frozen=True)
class Workload:
    """Everything that a training step's time depends on, except the device."""

    spec: ModelSpec
    train: TrainSpec
    numerics: RunNumerics

    @property
    def identity(self) -> JsonObject:
        """Settings that determine the time of a step on a device, without those that equal their first default."""
        plugins = versions_of(self.spec, self.train)
        train = {name: value for name, value in identity_of(self.train).items() if name not in timeless()}
        told = {"model": self.spec.identity(), "train": train, "numerics": identity_of(self.numerics)}
        return {**({"plugins": dict(plugins)} if plugins else {}), **told}


class StepTime(NamedTuple):
    """Measured seconds of a training step. Workloads with equal `calibration` share one measurement, so their times
    have no error relative to each other. `error`, `processes`: see `CalibrationDocument`."""

    seconds: float
    calibration: str
    error: float | None = None
    processes: int | None = None


Clock = Callable[[Sequence[Workload]], Sequence[StepTime]]
"""Function that returns the step time of each workload."""


def training_cost(train: TrainSpec, spec: ModelSpec, widths: Sequence[int], beside: ModelSpec | None = None) -> Cost:
    """Cost at the training context. FLOPs per token are the mean over `widths`, the row widths that training cycles
    through. They include the forward pass of a model `beside`, such as a teacher, and per-step work divided by
    the tokens of a step."""
    costs = {width: train.objective.cost(spec, width) for width in set(widths)}
    per_token = {width: each.flops_per_token for width, each in costs.items()}
    whole = train.objective.cost(spec, train.context)
    change = fmean(costs[width].flops_per_step for width in widths) / train.tokens
    if train.part is not None:
        change += train.part.flops_change(spec)
    if beside is not None:
        taught = {width: train.objective.cost(beside, width) for width in set(widths)}
        change += fmean(taught[width].flops_per_token_forward for width in widths)
        change += fmean(taught[width].flops_per_pass for width in widths) / train.tokens
    return replace(
        whole,
        flops_per_token=fmean(per_token[width] for width in widths) + change,
        flops_per_token_square=whole.flops_per_token_square + change,
        flops_per_token_executed=whole.flops_per_token_executed + change,
    )


def in_flops(study: Study, train: TrainSpec, spec: ModelSpec) -> Study:
    """The study with a budget in tokens per parameter converted to FLOPs, equal for every arm. train, spec: the
    baseline's."""
    if study.budget.tokens_per_parameter is None:
        return study
    costs = training_cost(train, spec, study.data.widths(train.context))
    # an untied head counts here, as it always has: leaving it out would change the runs of such studies
    budget = study.budget.in_flops(costs.params - costs.params_embedding, costs.flops_per_token)
    return replace(study, sections=study.sections.model_copy(update={"budget": budget}))


def steps_of(study: Study, arm: Arm, costs: Cost, seconds_per_step: float | None) -> int:
    """Number of steps that the budget pays for in an arm, rounded to the nearest.

    An arm that needs another model, or is tuned on short runs, may spend a share of the budget. Raises StudyError if
    that is less than one step, or more than a trillion.
    """
    shares = {section: source.share for section, source in arm.given.items() if source.share != 1}
    share = arm.share * math.prod(shares.values())
    kind, budget, tokens = study.budget.kind, share * study.budget.amount, arm.train.tokens
    prices = {"flops": tokens * costs.flops_per_token, "tokens": tokens, "seconds": seconds_per_step}
    per_step = prices[kind]
    if per_step is None:
        raise ValueError("a budget in seconds needs the measured time of a step")
    if budget > 1e12 * per_step:
        reason = f"{budget:.3g} {kind} are more than a trillion steps of arm {arm.name}"
        raise study.error(study.budget_share or f"budget.{kind}", reason)
    if budget < per_step:
        step = f"{per_step:.3g} for {arm.train.batch} rows of {arm.train.context:,} tokens"
        own = "tune.fraction" if arm.share < 1 else ".".join((*arm.target, *shares, "fraction"))
        place = own if share != 1 else study.budget_share or f"budget.{kind}"
        raise study.error(place, f"{budget:.3g} {kind} are less than one step of arm {arm.name} ({step})")
    return round(budget / per_step)


SMOKE = "smoke"
"""The scale that only shows that a study runs."""
UTILISATION = 0.4
"""Assumed share of the matmul peak that small models reach in training."""


@dataclass(frozen=True)
class ArmPlan:
    """One arm: model, training settings, steps, and their cost."""

    name: str
    edits: JsonObject
    cell: JsonObject
    """Cell of a grid: the value of each factor, by path."""
    spec: ModelSpec
    train: TrainSpec
    steps: int
    cost: Cost
    cache_bytes: tuple[tuple[int, int], ...]
    """(context, declared cache bytes at batch 1 in the training dtype); empty for an encoder."""
    matched: str
    differs: dict[str, float]
    """Excess over the baseline in per cent: of tokens, FLOPs and parameters, and of seconds if known."""
    runs: tuple[RunPlan, ...]
    data: DataSource
    identity: DataIdentity
    """Identity of the corpus: text, split and tokenizer, which may be the arm's own."""
    tuned: JsonObject = field(default_factory=dict)
    """Settings that tuning chose, by path."""
    matching: dict[str, int] = field(default_factory=dict)
    """The edit that matched the parameters, beside the arm's own `edits`."""
    step_time: StepTime | None = None
    """Measured time of a step, if the budget is in seconds."""
    tokens_before: int = 0
    """Training tokens of the arm that this one starts from."""
    checkpoint: str | None = None
    """Checkpoint that this arm starts from, as the study names it; no count includes its training."""
    teacher: str | None = None
    """Arm or checkpoint that this arm is distilled from."""

    @property
    def tokens(self) -> int:
        return self.steps * self.train.batch * self.train.context

    @property
    def parameters(self) -> int:
        return self.cost.params

    @property
    def parameters_embedding(self) -> int:
        return self.cost.params_embedding

    @property
    def flops_per_token(self) -> float:
        return self.cost.flops_per_token

    @property
    def flops(self) -> float:
        """Training FLOPs of one run."""
        return self.tokens * self.flops_per_token

    @property
    def length(self) -> Length:
        """Length of the training, including that of the arm it starts from."""
        size, continues = self.cost.params_inside, self.checkpoint is not None
        return Length.of(self.tokens, self.steps, self.tokens_before, size, continues)

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Cache bytes at the training context, divided by its tokens; sliding windows shorter than the context lower
        it. An encoder-decoder has as many encoder as decoder tokens; None for an encoder alone, which has no cache.
        """
        sizes = dict(self.cache_bytes)
        return sizes[self.train.context] / self.train.context if sizes else None

    @property
    def seconds(self) -> float | None:
        """Training time of one run, from the measured time of a step; None if not measured."""
        return None if self.step_time is None else self.steps * self.step_time.seconds

    def estimated_seconds(self, speed: Speed) -> float:
        """Training time of one run: from the measured time of a step if known, else estimated from `speed`."""
        step = speed.step_seconds(self.flops / self.steps, len(self.spec.layers), UTILISATION)
        return self.seconds or self.steps * step


@dataclass(frozen=True)
class Plan:
    """All arms and runs of a study. The first arm is the baseline."""

    study: Study
    arms: tuple[ArmPlan, ...]
    measure: MeasureSpec | None
    evals: EvalSpec | None

    @cached_property
    def runs(self) -> tuple[RunPlan, ...]:
        """Every run, seed by seed, so that a study stopped early has complete seeds."""
        by_seed = zip_longest(*(arm.runs for arm in self.arms))
        return tuple(run for same_seed in by_seed for run in same_seed if run is not None)

    def sources(self) -> Plan:
        """The plan of the arms that others start from or are taught by: their runs come first."""
        names = {name for arm in self.study.arms for name in arm.sources}
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in names))

    def measures(self, digest: str) -> bool:
        """Whether the run of a digest is measured. Speed and bytes are the same for every seed, so only the first seed
        of each arm is. Losses under several caches differ by seed: then every run is."""
        if self.measure is None:
            return False
        return len(self.measure.caches) > 1 or any(arm.runs[0].digest == digest for arm in self.arms if arm.runs)

    @property
    def alternating_seconds(self) -> float:
        """Lower bound on the seconds of timing the arms against each other; 0 if they are not."""
        return self.measure.alternating_seconds(len(self.arms)) if self.measure and self.is_timed else 0.0

    @property
    def is_timed(self) -> bool:
        """Whether the arms are timed against each other; at smoke scale they are not."""
        return self.measure is not None and len(self.arms) > 1 and self.study.scale != SMOKE

    @cached_property
    def measure_digest(self) -> str | None:
        return None if self.measure is None else request_digest(self.measure)

    @cached_property
    def evals_digest(self) -> str | None:
        return None if self.evals is None else request_digest(self.evals)
