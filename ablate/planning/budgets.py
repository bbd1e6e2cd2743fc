"""Training cost, and the number of steps that a budget pays for. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from ablate.study.arms import Arm
from ablate.study.study import Study
from ablate.training.lora import flops_change
from ablate.training.spec import TrainSpec, timeless
from store.documents import JsonObject, RunNumerics
from zoo.costs import Cost
from zoo.settings.identity import identity_of
from zoo.settings.registry import versions_of
from zoo.spec import ModelSpec


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


def training_cost(train: TrainSpec, spec: ModelSpec, widths: Sequence[int], teacher: ModelSpec | None = None) -> Cost:
    """Cost at the training context. FLOPs per token are the mean over `widths`, the row widths that training cycles
    through. They include a teacher's forward pass, and per-step work divided by the tokens of a step."""
    costs = {width: train.objective.cost(spec, width) for width in set(widths)}
    per_token = {width: each.flops_per_token for width, each in costs.items()}
    whole = train.objective.cost(spec, train.context)
    change = fmean(costs[width].flops_per_step for width in widths) / train.tokens
    if train.lora is not None:
        change += flops_change(spec, train.lora)
    if teacher is not None:
        taught = {width: train.objective.cost(teacher, width) for width in set(widths)}
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

    An arm that starts from trained weights, or is tuned on short runs, spends a share of the budget. Raises StudyError
    if that is less than one step.
    """
    share = arm.share * (arm.start.share if arm.start else 1)
    kind, budget, tokens = study.budget.kind, share * study.budget.amount, arm.train.tokens
    prices = {"flops": tokens * costs.flops_per_token, "tokens": tokens, "seconds": seconds_per_step}
    per_step = prices[kind]
    if per_step is None:
        raise ValueError("a budget in seconds needs the measured time of a step")
    if budget < per_step:
        step = f"{per_step:.3g} for {arm.train.batch} rows of {arm.train.context:,} tokens"
        own = "tune.fraction" if arm.share < 1 else ".".join((*arm.target, "start.fraction"))
        place = own if share != 1 else study.budget_share or f"budget.{kind}"
        raise study.error(place, f"{budget:.3g} {kind} are less than one step of arm {arm.name} ({step})")
    return round(budget / per_step)
