"""The shapes of what a study found: frozen tuples that tables, figures and pages draw from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from reports.curves import Curve
from reports.stability import ProbeCurves, Scaling
from reports.statistics import Estimate

Verdict = Literal["baseline", "better", "worse", "inconclusive", "cannot tell", "diverged"]


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline, seed by seed. `difference` is arm − baseline, in nats per token.

    `p` is that of the paired t-test and `p_holm` the same corrected over the study's arms; both are
    None with fewer than two pairs or none that differ. `detectable_nats` is the smallest true
    difference that was found with 80 % probability. Ratios are arm / baseline.
    """

    difference: Estimate | None
    seeds: tuple[int, ...]
    p: float | None
    p_holm: float | None
    detectable_nats: float | None
    speed_ratio: Estimate | None
    memory_ratio: Estimate | None
    kv_ratio: float | None


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
    """What one run of an arm was planned to use; `train_seconds` is what it took."""

    tokens: int
    steps: int
    flops: float
    parameters: int
    train_seconds: float | None


@dataclass(frozen=True)
class ArmSummary:
    """One arm over its finished seeds. `comparison` is None for the baseline."""

    name: str
    edits: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    diverged: tuple[int, ...]
    missing: tuple[int, ...]
    loss: Estimate | None
    bits_per_byte: Estimate | None
    tokens_per_second: Estimate | None
    mfu: Estimate | None
    peak_memory_bytes: Estimate | None
    kv_bytes_per_token: float | None
    cache_bytes: tuple[tuple[int, int], ...]
    parameters_embedding: int
    flops_per_token: float
    budget: Budget
    scores: tuple[Score, ...]
    comparison: Comparison | None
    verdict: Verdict

    def document(self) -> dict[str, Any]:
        """The arm as `ablate run --json` prints it; null where there is no number."""
        loss = self.loss
        bounded = loss is not None and loss.low is not None
        return {
            "name": self.name,
            "edits": {path: json.loads(value) for path, value in self.edits},
            "seeds": list(self.seeds),
            "loss": _mean(loss),
            "loss_interval": [loss.low, loss.high] if loss is not None and bounded else None,
            "bits_per_byte": _mean(self.bits_per_byte),
            "tokens_per_second": _mean(self.tokens_per_second),
            "peak_memory_bytes": _mean(self.peak_memory_bytes),
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "parameters": self.budget.parameters,
            "flops_per_token": self.flops_per_token,
            "evals": _score_document(self.scores),
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Noise:
    """Scatter over seeds in nats per token: of the loss within an arm, of the paired differences."""

    loss_sd: float | None
    difference_sd: float | None


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
    arms: tuple[ArmSummary, ...]
    noise: Noise
    warnings: tuple[str, ...]
    training: tuple[Curve, ...]
    differences: tuple[Curve, ...]
    contexts: tuple[Curve, ...]
    probes: tuple[ProbeCurves, ...]
    scaling: tuple[Scaling, ...]
    environment: tuple[tuple[str, tuple[str, ...]], ...]
    runs: pl.DataFrame

    def arm_documents(self) -> list[dict[str, Any]]:
        """`arms` of `ablate run --json`."""
        return [arm.document() for arm in self.arms]


def _mean(value: Estimate | None) -> float | None:
    return None if value is None else value.mean


def _score_document(scores: tuple[Score, ...]) -> dict[str, dict[str, dict[str, float | None]]]:
    tasks: dict[str, dict[str, dict[str, float | None]]] = {}
    for score in scores:
        tasks.setdefault(score.task, {})[score.metric] = {
            "value": score.value,
            "stderr": score.stderr,
        }
    return tasks
