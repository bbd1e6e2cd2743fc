"""Exponential moving average."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from zoo.building_blocks import (
    Features,
    ForwardPass,
    LayerCache,
    LayerSite,
    Linear,
    Mixer,
    MixerLayer,
    PartCost,
    StateCache,
    in_float32,
    kept_by,
    matmul_cost,
    number,
    on_text,
)

STATE = "average"
"""What the cache calls it."""


class MovingAverage(Mixer):
    """out_t = W_o s_t, s_t = α ⊙ W_v x_t + (1 − α) ⊙ s_{t−1}, α = sigmoid(a). Ma et al. 2022 (Mega), arXiv:2209.10655,
    without damping, in one dimension per feature."""

    kind: Literal["ema"] = "ema"
    features: Features | None = None
    """Averages that are kept; null for d_model."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"features": self.features or d_model})

    def build(self, site: LayerSite) -> MixerLayer:
        return MovingAverageLayer(site.d_model, number(self.features))

    def cost(self, d_model: int, context: int) -> PartCost:
        matrices = 2 * d_model * number(self.features)
        return matmul_cost(matrices + number(self.features), matrices)

    def cache_elements(self, capacity: int) -> int:
        return number(self.features)


class MovingAverageLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"rate": "bias"}

    def __init__(self, d_model: int, features: int) -> None:
        super().__init__()
        self.v = Linear(d_model, features, role="input", values=True)
        self.o = Linear(features, d_model, role="output")
        self.rate = nn.Parameter(torch.zeros(features))

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return StateCache.zeros(batch, {STATE: (self.rate.shape[0],)}, self.rate, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        states = kept_by(self, cache, StateCache)
        # Zeros on padding leave the average where it starts, as if the row began with its text.
        values = on_text(self.v(x), step)
        before = None if states is None else states.read(STATE, values.dtype)
        if before is None:
            before = torch.zeros_like(values[:, 0])
        averages = in_float32(averaged, values, self.rate, before)
        if states is not None:
            states.write(STATE, averages[:, -1])
        out: Tensor = self.o(averages.to(values.dtype))
        return out


def averaged(values: Tensor, rate: Tensor, state: Tensor) -> Tensor:
    """values: (B, T, F), rate: (F,), state: (B, F) → the state after each token (B, T, F)."""
    share, states = rate.sigmoid(), []
    for value in values.unbind(1):
        state = share * value + (1 - share) * state
        states.append(state)
    return torch.stack(states, 1)
