"""Attention temperature: queries grow with their position, so that attention stays sharp in long texts."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.settings.axis import Spec
from zoo.site import ForwardPass


class Temperature(Spec):
    """q ← q · (1 + c log(1 + ⌊(p + offset) / f⌋)) for the query at position p, counted from 0.

    Used in Llama 4 (Meta 2025, https://github.com/meta-llama/llama-models) on layers without positions, with offset 1,
    and in Ministral 3 on all layers, with offset 0.
    """

    supports: ClassVar[Operations] = EVERY_OPERATION

    coefficient: PositiveFloat = 0.1
    """c: growth of queries per unit of the logarithm."""
    floor: PositiveInt = 8192
    """f: shorter texts, in tokens, are unaffected."""
    offset: NonNegativeInt = 1
    """Number added to a query's position p before the division by f."""

    def scale(self, q: Tensor, step: ForwardPass) -> Tensor:
        """q: (B, H, T, d) → the same shape."""
        places = step.positions.clamp(min=0).float()
        factor = 1 + self.coefficient * torch.log1p(((places + self.offset) / self.floor).floor())
        return q * factor.view(-1, 1, q.shape[2], 1).to(q.dtype)
