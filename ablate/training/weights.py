"""Weights that training changes, all or those that a setting adds to frozen ones, and their moving average.

The average is scored and stored in place of the last weights:

    w̄ₙ = w̄ₙ₋₁ + (wₙ − w̄ₙ₋₁) / min(n, h)        after update n of N, with h = max(1, horizon · N)

It is the plain mean of the first h weights, then an average with a time constant of h steps, the same share of a run of
any length. Averaging removes the noise of single batches that the last learning rates leave in the weights (Polyak and
Juditsky 1992, doi:10.1137/0330046; Izmailov et al. 2018, arXiv:1803.05407).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

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


class AverageSpec(Spec):
    """An average of the weights: `{kind: ema, horizon: 0.04}`."""

    kind: Literal["ema"] = "ema"
    """Kind of average: `ema`, an exponential moving average."""
    horizon: Annotated[float, Field(gt=0, le=1)] = 0.04
    """Reach of the average into the past, as a share of the steps."""


class ScoredWeights(ABC):
    """Weights that are scored and stored in place of those that training moves."""

    @abstractmethod
    def pairs(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Weights of the model that training moves, each with what is scored in its place."""

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Give the model the scored weights inside the block, and its own weights, bit for bit, afterwards."""
        own = [(moved, moved.clone()) for moved, _ in self.pairs()]
        self.settle()
        yield
        for moved, before in own:
            moved.copy_(before)

    def settle(self) -> None:
        """Replace the model's weights by the scored ones. Training ends with this."""
        for moved, scored in self.pairs():
            moved.copy_(scored)


class WeightAverage(ScoredWeights):
    """The average of a model's parameters over `steps` steps. Buffers stay those of the last step."""

    def __init__(self, model: nn.Module, spec: AverageSpec, steps: int) -> None:
        self._parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._averages = {name: parameter.clone() for name, parameter in self._parameters.items()}
        self._reach = max(1.0, spec.horizon * steps)

    def update(self, step: int) -> None:
        """Add the weights after 1-based `step` to the average."""
        torch._foreach_lerp_(list(self._averages.values()), list(self._parameters.values()), 1 / min(step, self._reach))

    def pairs(self) -> Iterable[tuple[Tensor, Tensor]]:
        return zip(self._parameters.values(), self._averages.values(), strict=True)

    def state_dict(self) -> dict[str, Tensor]:
        return self._averages

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, average in self._averages.items():
            average.copy_(state[name])
