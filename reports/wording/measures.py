"""Training measurements of each run, as in figures and in the table of arms. Nothing else lists these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from ablate.store.documents.costs import CROWDED
from reports.findings.study_summary import ArmSummary
from reports.wording import cost_words, words

MIB = 2**20
Better = Literal["low", "high"]


@dataclass(frozen=True)
class RunMeasure:
    """A number of each run: its `value` from the frame of runs, in the unit of the `label`.

    `text` is an arm's mean as the table of arms has it, below `heading`; without it the table does not have it.
    """

    key: str
    label: str
    better: Better
    value: pl.Expr
    text: Callable[[ArmSummary], str] | None = None
    column: str | None = None

    @property
    def heading(self) -> str:
        return self.column or self.label


def mean_of(arm: ArmSummary, column: str) -> float | None:
    """Over the arm's seeds, of a number in the frame of runs."""
    found = arm.means.get(column)
    return None if found is None else found.mean


def _speed(arm: ArmSummary) -> str:
    """Speed measured against the other arms, not in its own runs."""
    ratio = arm.comparison.costs.training if arm.comparison else None
    change = cost_words.speed_change(ratio).removesuffix(" in speed")
    return words.whole(arm.training_speed) + (f" ({change})" if change else "")


def _utilisation(arm: ArmSummary) -> str:
    """At that speed, of the products that were measured and of those that the data sheet names."""
    measured, published = _share(arm, "matmul_flops_per_second"), _share(arm, "published_flops_per_second")
    return measured if published == words.NONE else f"{measured} ({published} of the data sheet's)"


def _share(arm: ArmSummary, ceiling: str) -> str:
    peak = mean_of(arm, ceiling)
    if arm.training_speed is None or not peak:
        return words.NONE
    return f"{100 * arm.training_speed * arm.flops_per_token / peak:.1f} %"


ALONE = (pl.col("waiting").fill_null(0.0) < CROWDED) & (pl.col("beside").fill_null(0) == 0)
"""Whether nothing else slowed a run."""


def _undisturbed(value: pl.Expr) -> pl.Expr:
    return pl.when(ALONE).then(value)


RUN_MEASURES = (
    RunMeasure(
        "bits-per-byte",
        "bits per byte",
        "low",
        pl.col("bits_per_byte"),
        lambda arm: words.plus_minus(arm.bits_per_byte),
    ),
    RunMeasure("accuracy", "accuracy", "high", pl.col("accuracy"), lambda arm: words.plus_minus(arm.accuracy)),
    RunMeasure(
        "excess",
        "loss above the floor (nats/token)",
        "low",
        pl.col("loss") - pl.col("floor"),
        lambda arm: words.plus_minus(arm.excess),
    ),
    RunMeasure("speed", "training speed (tokens/s)", "high", _undisturbed(pl.col("tokens_per_second")), _speed),
    RunMeasure(
        "mfu",
        "model FLOP utilisation (%)",
        "high",
        _undisturbed(100 * pl.col("mfu")),
        _utilisation,
        "model FLOP utilisation",
    ),
    RunMeasure(
        "step-time",
        "time of a training step (ms)",
        "low",
        _undisturbed(1000 * pl.col("tokens") / pl.col("steps") / pl.col("tokens_per_second")),
    ),
    RunMeasure(
        "peak-memory",
        "peak memory (MiB)",
        "low",
        pl.col("peak_memory_bytes") / MIB,
        lambda arm: words.size(mean_of(arm, "peak_memory_bytes")),
        "peak memory",
    ),
    RunMeasure("seconds", "training time (s)", "low", pl.col("train_seconds")),
    RunMeasure("flops", "training FLOPs", "low", pl.col("flops")),
)
