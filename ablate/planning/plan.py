"""Plan of a study: its arms, their runs, and their costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from ablate.data import DataIdentity, DataSource
from ablate.planning.budgets import StepTime
from ablate.planning.identity import RunPlan, request_digest
from ablate.study.study import Study
from ablate.training.spec import TrainSpec
from evals.costs.machine import Speed
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from store.documents import JsonObject, Length
from zoo.costs import Cost
from zoo.spec import ModelSpec

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
