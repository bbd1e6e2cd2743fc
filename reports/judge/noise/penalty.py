"""Distribution of the loss, in nats, that a choice by tuning may have cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.judge.noise import Floats, Noise

LEVELS = np.append(np.geomspace(1e-5, 0.05, 60, endpoint=False), np.linspace(0.05, 1.0, 96))
"""Upper tail probabilities at which a penalty is tabulated."""


@dataclass(frozen=True)
class Penalty:
    """Distribution of the loss due to a choice: `values` in nats, ascending, with `weights` that sum to 1."""

    values: Floats
    weights: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats) -> Penalty:
        """Compress weighted draws to the quantiles at `LEVELS`."""
        order = np.argsort(values)
        below = np.cumsum(weights[order]) - weights[order] / 2
        edges = np.append(0.0, LEVELS)
        quantiles = np.interp(1 - (edges[:-1] + edges[1:]) / 2, below, values[order])
        return cls(quantiles[::-1], np.diff(edges)[::-1])

    @property
    def is_bounded(self) -> bool:
        """False if nothing bounds the loss."""
        return bool(np.isfinite(self.values[-1]))

    @property
    def is_nothing(self) -> bool:
        """True if nothing can have been lost, as when no choice was made."""
        return float(self.values[-1]) == 0.0

    def at_most(self, most: float) -> Penalty:
        """This penalty, capped at `most` nats; an unbounded one stays unbounded."""
        return Penalty(np.minimum(self.values, most), self.weights) if self.is_bounded else self

    def plus(self, other: Penalty) -> Penalty:
        """The sum of two independent penalties."""
        if self.is_nothing or other.is_nothing:
            return other if self.is_nothing else self
        return Penalty.of(
            np.add.outer(self.values, other.values).ravel(), np.multiply.outer(self.weights, other.weights).ravel()
        )


NOTHING = Penalty(np.zeros(1), np.ones(1))
"""The penalty of an arm that chose nothing."""


UNBOUNDED = Penalty(np.full(1, math.inf), np.ones(1))
"""The penalty of an arm whose best setting may lie beyond those that were tried."""


def choice_penalty(means: Sequence[float], chosen: int, noise: Noise, draws: int = 10_000) -> Penalty:
    """Penalty of taking one of several unordered settings; `noise` is the noise of their mean losses."""
    draw = np.random.default_rng(0)
    scale = noise.sd * np.sqrt(noise.freedom / draw.chisquare(noise.freedom, (draws, 1)))
    truth = np.asarray(means) + scale * draw.normal(size=(draws, len(means)))
    return Penalty.of(truth[:, chosen] - truth.min(axis=1), np.full(draws, 1 / draws))
