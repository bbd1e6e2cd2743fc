"""The part of a model that training changes: all weights, or what a setting of training adds to frozen ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from torch import nn

from zoo.model import Decoder
from zoo.settings.axis import Spec
from zoo.spec import ModelSpec


class Addition(nn.Module, ABC):
    """Weights that are trained beside a model's own, which are frozen, and merged into them after the last step."""

    @abstractmethod
    def merge(self) -> None:
        """Add them to the model's weights."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save them beside the model."""


class PartSpec(Spec):
    """Settings of an addition."""

    setting: ClassVar[str]
    """Description of the setting in `train`."""

    @abstractmethod
    def build(self, model: Decoder, seed: int) -> Addition:
        """Add it to a model, whose own weights are frozen."""

    @abstractmethod
    def flops_change(self, model: ModelSpec) -> float:
        """Difference of a training step's FLOPs per token from those of training all weights."""
