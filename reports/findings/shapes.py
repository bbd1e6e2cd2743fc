"""The shapes of what a study found: frozen tuples that tables, figures and pages draw from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from ablate.store.documents import StudyObjective
from reports.findings.caches import Caches
from reports.findings.closeups import Closeups
from reports.findings.curves import Curve
from reports.findings.difficulty import AccuracyCurve
from reports.findings.items import ItemDifference
from reports.findings.ladders import LadderArm
from reports.findings.losses import Clock, RunLoss
from reports.findings.measures import Measure
from reports.findings.positions import PositionCurve
from reports.findings.recall import RecallCurve
from reports.findings.stability import ProbeCurves, Scaling
from reports.findings.tunings import ArmTuning
from reports.statistics.estimates import ALPHA, Estimate

Verdict = Literal["baseline", "better", "worse", "no difference", "inconclusive", "cannot tell", "diverged"]


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline, seed by seed. `difference` is arm − baseline, in nats per token.

    Its interval is at the confidence 1 − `alpha`: 95 %, or more where the study looks at its results more than once.
    `p` is that of the paired t-test, corrected for the looks, and `p_holm` for the study's arms too; `p_equivalence`
    is that of the tests against the study's margin, None without one, corrected in the same way. All are None with
    fewer than two pairs or none that differ. `detectable_nats` is the smallest true difference that was found with
    80 % probability; so many `seeds_needed` more would settle the pair with that probability, None where none would.
    Ratios are arm / baseline.
    """

    difference: Estimate | None
    seeds: tuple[int, ...]
    alpha: float
    p: float | None
    p_holm: float | None
    p_equivalence: float | None
    detectable_nats: float | None
    seeds_needed: int | None
    speed_ratio: Estimate | None
    memory_ratio: Estimate | None
    kv_ratio: float | None

    @property
    def shows_difference(self) -> bool:
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def shows_no_difference(self) -> bool:
        """None as large as the margin."""
        return self.p_equivalence is not None and self.p_equivalence < ALPHA


@dataclass(frozen=True)
class Score:
    """One metric of one task, averaged over seeds; `stderr` covers items and seeds.

    `value` is None where a seed has none: a mean without an infinite perplexity would flatter.
    """

    task: str
    metric: str
    value: float | None
    stderr: float | None
    higher_is_better: bool | None
    chance: float | None
    seeds: int


@dataclass(frozen=True)
class Budget:
    """What one run of an arm was planned to use.

    `train_seconds` is what it took, `allowed_seconds` what it was given where the budget is in seconds.
    """

    tokens: int
    steps: int
    flops: float
    parameters: int
    train_seconds: float | None
    allowed_seconds: float | None


@dataclass(frozen=True)
class ArmSummary:
    """One arm over its finished seeds. `comparison` is None for the baseline.

    Text has bits per byte; tasks that are made have an accuracy, and, where the least loss possible is known, an
    `excess` above it in nats per token.

    Beside its own `edits`, `tuned` are the settings that tuning chose, and `matching` those that gave it the baseline's
    parameters.
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    tuned: tuple[tuple[str, str], ...]
    matching: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]
    missing: tuple[int, ...]
    loss: Estimate | None
    bits_per_byte: Estimate | None
    accuracy: Estimate | None
    excess: Estimate | None
    tokens_per_second: Estimate | None
    mfu: Estimate | None
    peak_memory_bytes: Estimate | None
    kv_bytes_per_token: float | None
    cache_bytes: tuple[tuple[int, int], ...]
    parameters_embedding: int
    flops_per_token: float
    budget: Budget
    scores: tuple[Score, ...]
    items: tuple[ItemDifference, ...]
    comparison: Comparison | None
    verdict: Verdict

    @property
    def seeds_needed(self) -> int | None:
        """How many more seeds would probably settle an inconclusive arm; None where none would, or nothing is open."""
        found = self.comparison
        if found is None or self.verdict != "inconclusive" or found.shows_difference:
            return None
        return found.seeds_needed

    def document(self) -> dict[str, Any]:
        """The arm as `ablate run --json` prints it; null where there is no number."""
        loss = self.loss
        found = self.comparison
        return {
            "name": self.name,
            "edits": {path: json.loads(value) for path, value in self.edits},
            "tuned": {path: json.loads(value) for path, value in self.tuned},
            "matching": {path: json.loads(value) for path, value in self.matching},
            "seeds": list(self.seeds),
            "loss": _mean(loss),
            "loss_interval": _interval(loss),
            "bits_per_byte": _mean(self.bits_per_byte),
            "accuracy": _mean(self.accuracy),
            "accuracy_interval": _interval(self.accuracy),
            "excess": _mean(self.excess),
            "tokens_per_second": _mean(self.tokens_per_second),
            "peak_memory_bytes": _mean(self.peak_memory_bytes),
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "parameters": self.budget.parameters,
            "flops_per_token": self.flops_per_token,
            "evals": _score_document(self.scores),
            "verdict": self.verdict,
            "difference": _mean(found.difference if found else None),
            "difference_interval": _interval(found.difference if found else None),
            "p": found.p_holm if found else None,
            "seeds_needed": self.seeds_needed,
            "eval_differences": _item_document(self.items),
        }


@dataclass(frozen=True)
class Noise:
    """Scatter over seeds in nats per token: of the loss within an arm, of the paired differences.

    `detectable_nats` are the smallest true differences that would have shown with 80 % probability: in the arm where
    least suffices, and in the one that takes most.
    """

    loss_sd: float | None
    difference_sd: float | None
    detectable_nats: tuple[float, float] | None


@dataclass(frozen=True)
class StudySummary:
    """All that a report says. `environment` maps a key to its distinct values over the runs."""

    name: str
    scale: str
    question: str
    source: str
    created: str
    baseline: str
    matched: str
    margin: float | None
    per: str
    """Losses are in nats per one of these: `token`; `target` where an objective asks for some tokens only; `byte` where
    arms have tokenizers of their own."""
    objective: StudyObjective | None
    """What was predicted, where the loss is not over every token."""
    conventions: tuple[str, ...]
    """What a context is where speed and bytes are those of one; a sentence for each kind of model but the causal."""
    looks: tuple[int, ...]
    """Numbers of seeds at which an arm is judged; empty where the number is fixed."""
    arms: tuple[ArmSummary, ...]
    noise: Noise
    warnings: tuple[str, ...]
    training: tuple[Curve, ...]
    training_accuracy: tuple[Curve, ...]
    losses: tuple[RunLoss, ...]
    clocks: tuple[Clock, ...]
    measures: tuple[Measure, ...]
    differences: tuple[Curve, ...]
    contexts: tuple[Curve, ...]
    caches: Caches
    positions: tuple[PositionCurve, ...]
    recall: tuple[RecallCurve, ...]
    accuracies: tuple[AccuracyCurve, ...]
    closeups: Closeups
    tunings: tuple[ArmTuning, ...]
    ladder: tuple[LadderArm, ...]
    probes: tuple[ProbeCurves, ...]
    scaling: tuple[Scaling, ...]
    environment: tuple[tuple[str, tuple[str, ...]], ...]
    runs: pl.DataFrame
    grouped: frozenset[str]
    """Tasks of which a group has the score too: figures draw the group, tables have both."""

    @property
    def unit(self) -> str:
        """Of losses and their differences."""
        return f"nats/{self.per}"

    def arm_documents(self) -> list[dict[str, Any]]:
        """`arms` of `ablate run --json`."""
        return [arm.document() for arm in self.arms]


def _mean(value: Estimate | None) -> float | None:
    return None if value is None else value.mean


def _interval(value: Estimate | None) -> list[float] | None:
    return None if value is None or value.low is None or value.high is None else [value.low, value.high]


def _item_document(items: tuple[ItemDifference, ...]) -> dict[str, dict[str, dict[str, Any]]]:
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for found in items:
        tasks.setdefault(found.task, {})[found.metric] = found.document()
    return tasks


def _score_document(scores: tuple[Score, ...]) -> dict[str, dict[str, dict[str, float | None]]]:
    tasks: dict[str, dict[str, dict[str, float | None]]] = {}
    for score in scores:
        tasks.setdefault(score.task, {})[score.metric] = {
            "value": score.value,
            "stderr": score.stderr,
        }
    return tasks
