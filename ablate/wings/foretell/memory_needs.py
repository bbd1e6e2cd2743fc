"""Whether the arms of a plan fit in a device's memory, and the microbatch or other settings with which they would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import ClassVar

from ablate.machine.apart import near
from ablate.machine.numerics import Numerics, alike_gpus
from ablate.planning.plan import ArmPlan, Plan
from ablate.running.study_plan import StudyPlan
from ablate.training.batch import largest_divisor
from ablate.training.execution import Execution
from ablate.wings.foretell.step_memory import PROCESS_BYTES, foreseen
from evals.costs.machine import room_bytes
from reports.judge.sentences import listed
from store.documents import JsonObject
from zoo.costs import Cost


@dataclass(frozen=True)
class Room:
    """Memory of a device. runs: number of runs that share it. free: whether `bytes` is what other programs leave free,
    rather than the total."""

    bytes: int
    runs: int = 1
    free: bool = False

    @property
    def each(self) -> int:
        return self.bytes // self.runs

    @classmethod
    def of(cls, plan: StudyPlan) -> Room:
        """The memory that concurrent runs of a plan share."""
        device = plan.outcome.plan.runs[0].identity.numerics.device
        on_gpu = device == "cuda"
        free = near(device, room_bytes, device, [gpu.number for gpu in alike_gpus()])
        return cls(free, plan.execution.workers_per_gpu if on_gpu else plan.at_once, free=on_gpu)


@dataclass(frozen=True)
class MemoryNeed:
    """Predicted memory of one run of an arm.

    peak_memory_bytes: counted as in the run's result; None if it cannot be predicted. microbatch: rows of a batch at a
    time; None for all. attention: backends of softmax attention; None if unknown.
    """

    peak_memory_bytes: int | None
    microbatch: int | None = None
    attention: str | None = None

    def fits(self, room: Room) -> bool:
        return self.peak_memory_bytes is None or self.peak_memory_bytes <= room.each


FEWEST_TERMS = 8
"""Lower bound on the inner dimension of matrix products: an output element costs at least 2 · 8 FLOPs."""
COPIES = 10
"""Number of tensors of the size of a product's output that training keeps: inputs of norms, masks, gates and their
gradients."""


def surely_fits(arm: ArmPlan, room: Room) -> bool:
    """Whether a run fits by a generous upper bound, which makes tracing a training step unnecessary."""
    return arm.teacher is None and most_bytes(arm.cost, arm.train.batch * arm.train.context) <= room.each


def most_bytes(cost: Cost, tokens: int) -> float:
    """Upper bound on the peak memory of training with `tokens` per microbatch. Its activations are at least 2.9 times,
    mostly ten times, those that a trace predicts, for every variant."""
    activations = tokens * cost.flops_per_token_forward / (2 * FEWEST_TERMS) * COPIES * 4
    weights = 16 * cost.params  # with gradients and two moments, in float32
    return PROCESS_BYTES + weights + activations


@dataclass(frozen=True)
class MemoryForecasts:
    """Forecasts for the arms of a plan, each of which takes about a second."""

    plan: StudyPlan
    room: Room
    _known: dict[tuple[str | None, str], MemoryNeed] = field(default_factory=dict)
    fields: ClassVar = {"peak_memory_bytes": int, "microbatch": int, "attention": str}
    """Types of an arm's fields."""

    def foretold(self, rung: Plan, arm: ArmPlan) -> JsonObject:
        """Fields of an arm in the plan's JSON and frame."""
        return asdict(self._needed(rung, arm))

    def cells(self, rung: Plan, arm: ArmPlan, details: bool) -> dict[str, str]:
        """Columns of the plan's table: only with `details`, or if memory matters."""
        if not details and not self._matters:
            return {}
        need = self._needed(rung, arm)
        rows = "" if need.microbatch is None else f", {need.microbatch} rows at a time"
        peak = "–" if need.peak_memory_bytes is None else f"{need.peak_memory_bytes / 2**30:.2g} GiB{rows}"
        return {"peak memory": peak, "attention": need.attention or "–"}

    def remarks(self) -> Iterator[str]:
        """Which arms do not fit, what the largest of them needs, and with which options it would fit."""
        room, needs = self.room, [(self._needed(*each), *each) for each in (self._arms if self._matters else ())]
        if not (large := [each for each in needs if not each[0].fits(room)]):
            return
        need, plan, arm = max(large, key=lambda each: each[0].peak_memory_bytes or 0)
        names = list(dict.fromkeys(each.name for _, _, each in large))
        who = f"arm {arm.name} does not fit: it" if len(names) == 1 else f"arms {listed(names)} do not fit: {arm.name}"
        there = f"{_gib(room.bytes)} free" if room.free else _gib(room.bytes)
        shared = f", shared by {room.runs} runs at once" if room.runs > 1 else ""
        can_cut = all(each.spec.couples_rows is None for _, _, each in large)
        for settings, words in _ways(self.plan.execution, can_cut):
            if (less := needed(plan, arm, settings, room)).fits(room):
                remedy = f"with {words} it needs about {_gib(less.peak_memory_bytes or 0)}"
                break
        else:
            remedy = f"try {'fewer workers or a smaller batch' if room.runs > 1 else 'a smaller batch or model'}"
        yield f"{who} needs about {_gib(need.peak_memory_bytes or 0)} of {there}{shared}; {remedy}"

    @property
    def _arms(self) -> Iterator[tuple[Plan, ArmPlan]]:
        return ((rung.plan, arm) for rung in self.plan.outcome.rungs for arm in rung.plan.arms)

    @cached_property
    def _matters(self) -> bool:
        """Whether a run may not fit in memory, or options that save memory are set."""
        cut = self.plan.execution.microbatch is not None or self.plan.execution.recompute
        return cut or not all(surely_fits(arm, self.room) for _, arm in self._arms)

    def _needed(self, rung: Plan, arm: ArmPlan) -> MemoryNeed:
        place = rung.study.rung, arm.name
        if place not in self._known:
            self._known[place] = needed(rung, arm, self.plan.execution, self.room)
        return self._known[place]


def forecasts(plan: StudyPlan) -> MemoryForecasts:
    return MemoryForecasts(plan, Room.of(plan))


def needed(plan: Plan, arm: ArmPlan, execution: Execution, room: Room) -> MemoryNeed:
    """Memory need of an arm. `microbatch: auto` halves until it fits, as training does when memory runs out."""
    couples = arm.spec.couples_rows
    if isinstance(execution.microbatch, int):
        if couples is not None:
            return MemoryNeed(None)
        return _cut(plan, arm, execution.microbatch, execution.recompute)
    whole = _cut(plan, arm, None, execution.recompute)
    if execution.microbatch is None or couples is not None or whole.fits(room):
        return whole
    found, rows = whole, arm.train.batch
    while rows > 1 and not found.fits(room):  # halved as in `Accumulation`
        rows = largest_divisor(arm.train.batch, rows // 2)
        found = _cut(plan, arm, rows, execution.recompute)
    return found


def _cut(plan: Plan, arm: ArmPlan, rows: int | None, recompute: bool) -> MemoryNeed:
    if arm.teacher is not None:  # a teacher's memory is not predicted
        return MemoryNeed(None, rows)
    numerics = Numerics(**arm.runs[0].identity.numerics.model_dump())
    width = max(plan.study.data.widths(arm.train.context))
    found = foreseen(arm.spec, arm.train, numerics, width=width, rows=rows, recompute=recompute)
    return MemoryNeed(found.peak_memory_bytes, rows, attention=found.attention)


def _ways(execution: Execution, can_cut: bool) -> Iterable[tuple[Execution, str]]:
    """Executions that need less memory than `execution`, cheapest first, with their command-line options."""
    if can_cut:
        yield execution.model_copy(update={"microbatch": "auto"}), "--microbatch auto"
    if not execution.recompute:
        yield execution.model_copy(update={"recompute": True}), "--recompute"
        if can_cut:
            both = {"microbatch": "auto", "recompute": True}
            yield execution.model_copy(update=both), "--microbatch auto --recompute"


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
