"""An exponential moving average of the weights, which is scored and stored in place of the last weights.

    w̄ₙ = w̄ₙ₋₁ + (wₙ − w̄ₙ₋₁) / min(n, h)        after update n of N, with h = max(1, horizon · N)

It is the plain mean of the first h weights, then an average with a time constant of h steps, the same share of a run of
any length. Averaging removes the noise of single batches that the last learning rates leave in the weights (Polyak and
Juditsky 1992, doi:10.1137/0330046; Izmailov et al. 2018, arXiv:1803.05407).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zoo.settings.axis import Spec


class AverageSpec(Spec):
    """An average of the weights: `{kind: ema, horizon: 0.04}`."""

    kind: Literal["ema"] = "ema"
    """Kind of average: `ema`, an exponential moving average."""
    horizon: Annotated[float, Field(gt=0, le=1)] = 0.04
    """Reach of the average into the past, as a share of the steps."""


class WeightAverage:
    """The average of a model's parameters over `steps` steps. Buffers stay those of the last step."""

    def __init__(self, model: nn.Module, spec: AverageSpec, steps: int) -> None:
        self._parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._averages = {name: parameter.clone() for name, parameter in self._parameters.items()}
        self._reach = max(1.0, spec.horizon * steps)

    def update(self, step: int) -> None:
        """Add the weights after 1-based `step` to the average."""
        torch._foreach_lerp_(list(self._averages.values()), list(self._parameters.values()), 1 / min(step, self._reach))

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Give the model the averages inside the block, and its own weights afterwards."""
        own = {name: parameter.clone() for name, parameter in self._parameters.items()}
        self.settle()
        yield
        _copy(own, self._parameters)

    def settle(self) -> None:
        """Replace the model's weights by the averages."""
        _copy(self._averages, self._parameters)

    def state_dict(self) -> dict[str, Tensor]:
        return self._averages

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        _copy({name: state[name] for name in self._averages}, self._averages)


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, value in source.items():
        target[name].copy_(value)
