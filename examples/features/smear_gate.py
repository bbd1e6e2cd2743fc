"""A gated share of the token before, added to each embedded token."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.building_blocks import (
    NONE,
    OF_MODULES,
    Examples,
    ForwardPass,
    Ground,
    Grounds,
    LayerCache,
    Linear,
    Operations,
    PartCost,
    SpecError,
    TokenShift,
    matmul_cost,
)
from zoo.features import Feature, FeatureLayer, Model


class SmearGate(Feature):
    """x_t ← x_t + λ σ(w · x_t[:g]) x_{t−1} on the embedded tokens, λ = 0 at the start. Jordan et al. 2024
    (modded-nanogpt), https://github.com/KellerJordan/modded-nanogpt. x: (B, T, D), w: (g,)."""

    examples: ClassVar[Examples] = ({"width": 5},)
    needs: ClassVar[Grounds] = frozenset({Ground.SINGLE_STREAM, Ground.FIXED_DEPTH, Ground.WHOLE_STREAM, Ground.CAUSAL})
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = OF_MODULES

    width: PositiveInt = 12
    """g: features that the gate reads."""

    @property
    def has_norms(self) -> bool:
        return False

    def check(self, model: Model) -> None:
        if self.width > model.d_model:
            raise SpecError("width", f"must be at most d_model ({model.d_model}), not {self.width}")

    def build(self, model: Model) -> SmearGateLayer:
        return SmearGateLayer(model.d_model, self.width)

    def cost(self, model: Model, context: int) -> PartCost:
        return matmul_cost(self.width + 1, self.width)

    def cache_elements(self, model: Model) -> int:
        return model.d_model


class SmearGateLayer(FeatureLayer):
    """x: (B, T, D) → (B, T, D)."""

    name: ClassVar[str] = "smear_gate"
    shell: ClassVar[int] = 9
    roles: ClassVar = {"factor": "gain"}
    initial: ClassVar = {"factor": 0.0}

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.gate = Linear(width, 1, role="input")
        self.factor = nn.Parameter(torch.zeros(()))
        self.shift = TokenShift(d_model)

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        return self.shift.new_cache(batch, self.factor, dtype)

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer > 0:
            return x
        gate = self.gate(x[..., : self.gate.in_features]).sigmoid()
        return x + self.factor * gate * self.shift(x, step, step.caches.get(self.name))
