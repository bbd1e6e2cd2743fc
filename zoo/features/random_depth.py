"""A loop that runs a random number of turns in training."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt

from zoo.compatibility.traits import EVERY_OPERATION, NONE, Ground, Grounds, Operation, Operations
from zoo.settings.axis import Spec
from zoo.settings.field_tags import Supports

NODES = 1001
"""Number of quadrature nodes for τ: the rule is exact to 1e-9 for k up to 64."""


class RandomDepth(Spec):
    """r ~ Poisson(e^τ) + 1 turns in each training pass, τ ~ N(log r̄ − σ²/2, σ²), so that E r = r̄ + 1. Truncated
    backpropagation: gradients flow through the last k turns and from them into the prelude's output; earlier turns run
    without gradients. Geiping et al. 2025 (Huginn), arXiv:2502.05171 §3.3, with σ = ½ and k = 8.

    In evaluation the model's layers fix the number of turns. All rows of a pass share one r, drawn from torch's CPU
    generator, which training seeds by run and step; each microbatch draws its own, as in the paper. Declared training
    FLOPs are those of E r turns forward and E min(r, k) backward; a run's actual FLOPs vary around them by chance.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = frozenset({Ground.FIXED_DEPTH, Ground.LOWER_LAYERS, Ground.SAME_WORK})
    # Not SHARDING: processes would draw different numbers of turns and deadlock.
    supports: ClassVar[Operations] = frozenset({Operation.WIDTH_TRANSFER, Operation.WIDENING, Operation.LORA})

    mean: Annotated[PositiveInt | None, Supports(*EVERY_OPERATION)] = None
    """r̄; null: the number of turns in evaluation."""
    spread: Annotated[NonNegativeFloat, Field(le=1.5)] = 0.5
    """σ: standard deviation of τ, the logarithm of the Poisson distribution's mean."""
    backward: PositiveInt | None = 8
    """k: number of last turns that gradients flow through; null for all turns."""

    def draw(self, turns: int) -> int:
        """Draw r. turns: number of turns in evaluation."""
        tau = float(torch.randn((), dtype=torch.float64)) * self.spread + self._centre(turns)
        return 1 + int(torch.poisson(torch.tensor(math.exp(tau), dtype=torch.float64)))

    def _centre(self, turns: int) -> float:
        return math.log(self.mean or turns) - self.spread**2 / 2

    def expected(self, turns: int) -> tuple[float, float]:
        """(E r, E min(r, k)). turns: number of turns in evaluation."""
        forward = 1.0 + (self.mean or turns)
        if self.backward is None:
            return forward, forward
        return forward, _expected_least(self._centre(turns), self.spread, self.backward)


@cache
def _expected_least(centre: float, spread: float, most: int) -> float:
    """E min(r, k) = k − Σ_{n<k−1} (k − 1 − n) P(r − 1 = n), averaged over τ by the trapezoidal rule. most: k. Uses
    Python floats only, since memory is predicted with fake tensors, which hold no data."""
    total = weights = 0.0
    for node in range(NODES):
        z = 24 * node / (NODES - 1) - 12
        weight, rate = math.exp(-z * z / 2), math.exp(spread * z + centre)
        chance, least = math.exp(-rate), float(most)
        for n in range(most - 1):
            least -= (most - 1 - n) * chance
            chance *= rate / (n + 1)
        total += weight * least
        weights += weight
    return total / weights
