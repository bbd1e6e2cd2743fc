"""Scalings of RoPE's frequencies, so that a model reads longer texts than it was trained on: one file per scheme."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from zoo.settings.axis import Variant


class Scaling(Variant):
    """Frequencies θ from a base and a number of features, and what comes with them."""

    by_length: ClassVar[bool] = True
    """Whether frequencies change with the length of the text. Assumed of a scaling that does not say otherwise."""

    @property
    def magnitude(self) -> float:
        """Factor on the rotated queries and keys."""
        return 1.0

    @property
    def score_factor(self) -> float:
        """Factor on the mixer's own score scale, 1/√d."""
        return 1.0

    def check(self, dim: int, base: float) -> None:
        """Raise SpecError where frequencies of `dim` features and this base cannot be scaled so."""

    @abstractmethod
    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        """θ: (dim/2,) radians per position, float32, on the device of length.

        length: () int64, tokens of the longest row of this pass, those in the cache included.
        """


def rotation(base: float | Tensor, dim: int, device: torch.device) -> Tensor:
    """θ_i = base^(−2i/dim): (dim/2,) float32, as RoPE has them unscaled."""
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim)
