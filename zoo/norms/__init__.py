"""Normalisation layers: one file per variant."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import nn

from zoo.settings.axis import Variant


class Norm(Variant):
    """x: (..., D) → (..., D)."""

    normalises: ClassVar[bool] = True
    """Whether its output is bounded."""

    @abstractmethod
    def build(self, dim: int) -> nn.Module:
        """A module that normalises the last dimension, of size `dim`."""

    @abstractmethod
    def parameters(self, dim: int) -> int:
        """Number of parameters of a norm over `dim` features."""
