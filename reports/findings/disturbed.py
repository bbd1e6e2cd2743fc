"""Whether an arm's training speed is its own, or that of a machine which had other work. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

ALONE = 0.05
"""A run that waited for a processor for a smaller share of its training was measured alone: systems have work too."""
STEADY = 1.2
"""The seeds of an arm compute the same. On an idle machine the fastest is up to 1.1 times as fast as the slowest."""


def alone(waited: str) -> pl.Expr:
    """Whether what waited for a processor for this share of its time was measured alone, as far as is known."""
    return pl.col(waited).fill_null(0.0) < ALONE


@dataclass(frozen=True)
class Disturbance:
    """What runs of one arm had beside them: `waited` is the mean share of training for which they waited for a
    processor, `shared` the mean number of other runs on their GPU, `apart` the fastest run's speed over the slowest's.
    """

    waited: float = 0.0
    shared: float = 0.0
    apart: float = 1.0

    def __bool__(self) -> bool:
        return self.waited >= ALONE or self.shared > 0 or self.apart > STEADY


def disturbances(runs: pl.DataFrame) -> Mapping[str, Disturbance]:
    """By arm, those of which a run has finished."""
    finished = runs.filter(status="finished").partition_by("arm", as_dict=True)
    return {str(arm): _disturbance(of) for (arm,), of in finished.items()}


def _disturbance(finished: pl.DataFrame) -> Disturbance:
    speeds = finished["tokens_per_second"].drop_nulls().to_list()
    apart = max(speeds) / min(speeds) if speeds and min(speeds) > 0 else 1.0
    return Disturbance(_mean(finished, "waiting"), _mean(finished, "beside"), apart)


def _mean(runs: pl.DataFrame, column: str) -> float:
    """0 where it is not known."""
    known = runs[column].drop_nulls().to_list()
    return sum(known) / len(known) if known else 0.0
