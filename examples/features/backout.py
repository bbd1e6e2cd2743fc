"""A share of the stream after an earlier layer, subtracted before the head."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.building_blocks import OF_MODULES, Examples, ForwardPass, Ground, Grounds, Operations, PartCost, SpecError
from zoo.features import Feature, FeatureLayer, Model


class Backout(Feature):
    """x_L ← x_L − λ x_m: what the first m layers wrote as context is taken out of what the head reads. λ = 0.5 at the
    start, m = ⌈2L/3⌉ by default. Jordan et al. 2025 (modded-nanogpt), https://github.com/KellerJordan/modded-nanogpt.
    x: (B, T, D)."""

    examples: ClassVar[Examples] = ({}, {"layer": 1})
    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = OF_MODULES
    writes_after_layers: ClassVar[bool] = True

    layer: PositiveInt | None = None
    """m: layers whose output is taken out; null for two thirds of them."""

    @property
    def has_norms(self) -> bool:
        return False

    def after_layers(self, model: Model) -> int:
        return self.layer or -(-2 * model.n_layers // 3)

    def check(self, model: Model) -> None:
        if self.after_layers(model) >= model.n_layers:
            raise SpecError("layer", f"must be less than n_layers ({model.n_layers}), not {self.after_layers(model)}")

    def build(self, model: Model) -> BackoutLayer:
        return BackoutLayer(self.after_layers(model), model.n_layers)

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(1)


class BackoutLayer(FeatureLayer):
    """x: (B, T, D) → (B, T, D)."""

    name: ClassVar[str] = "backout"
    shell: ClassVar[int] = 9
    roles: ClassVar = {"factor": "gain"}
    initial: ClassVar = {"factor": 0.5}

    def __init__(self, early: int, n_layers: int) -> None:
        super().__init__()
        self.early, self.n_layers = early, n_layers
        self.factor = nn.Parameter(torch.zeros(()))

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer + 1 == self.early:
            step.states[self.name] = x
        if layer + 1 == self.n_layers:
            return x - self.factor * step.states[self.name]
        return x
