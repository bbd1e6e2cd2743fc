"""Normalisation layers: one file per variant."""

from __future__ import annotations

from abc import abstractmethod

from torch import nn

from zoo.axis import Variant


class Norm(Variant):
    """x: (..., D) → (..., D)."""

    @abstractmethod
    def build(self, dim: int) -> nn.Module:
        """A module that normalises the last dimension, of size `dim`."""

    @abstractmethod
    def parameters(self, dim: int) -> int:
        """How many parameters a norm over `dim` features has."""
