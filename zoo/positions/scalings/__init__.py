"""Scalings of RoPE's frequencies, for texts longer than those a model was trained on. One file per scheme."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from zoo.settings.axis import Variant


class Scaling(Variant):
    """Frequencies θ from a base and a number of features, with factors on queries, keys and scores."""

    by_length: ClassVar[bool] = True
    """Whether frequencies depend on the text's length, which is the safe default for a scaling."""

    @property
    def magnitude(self) -> float:
        """Factor on the rotated queries and keys."""
        return 1.0

    @property
    def score_factor(self) -> float:
        """Factor on the mixer's default score scale, 1/√d."""
        return 1.0

    def check(self, dim: int, base: float) -> None:
        """Raise SpecError if the scaling is undefined for `dim` rotated features and this base."""

    @abstractmethod
    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        """θ: (⌈dim/2⌉,) radians per position, float32, on the device of `length`.

        length: () int64, tokens of the longest row of this pass, cached tokens included.
        """


def rotation(base: float | Tensor, dim: int, device: torch.device) -> Tensor:
    """θ_i = base^(−2i/dim): (⌈dim/2⌉,) float32, the unscaled frequencies of RoPE."""
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim)
