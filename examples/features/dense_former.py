"""Depth-weighted averages: each layer reads a learned sum of the streams after all layers below."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.building_blocks import OF_MODULES, Examples, ForwardPass, Ground, Grounds, Operations, PartCost
from zoo.features import Feature, FeatureLayer, Model


class DenseFormer(Feature):
    """y_l = Σ_{j ≤ l} α_lj x_j, x_{l+1} = block_l(y_l), with x_0 the embedded tokens; the head reads y_L. α_ll = 1 and
    else 0 at the start. Pagliardini et al. 2024, arXiv:2402.02622.

    With a period p, only y_p, y_2p, … are averages, and y_l = x_l for all other l. x, y: (B, T, D).
    """

    examples: ClassVar[Examples] = ({}, {"period": 2})
    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = OF_MODULES
    writes_after_layers: ClassVar[bool] = True

    period: PositiveInt = 1
    """p: layers from one average to the next."""

    @property
    def has_norms(self) -> bool:
        return False

    def build(self, model: Model) -> DepthWeights:
        return DepthWeights(self.averages(model))

    def averages(self, model: Model) -> list[int]:
        """l of each average."""
        return list(range(self.period, model.n_layers + 1, self.period))

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(sum(after + 1 for after in self.averages(model)))


class DepthWeights(FeatureLayer):
    """α: one vector of l + 1 numbers for each average y_l."""

    name: ClassVar[str] = "depth_weights"
    shell: ClassVar[int] = 6

    def __init__(self, averages: list[int]) -> None:
        super().__init__()
        self.roles = {str(after): "gain" for after in averages}
        self.initial = {str(after): torch.eye(after + 1)[-1] for after in averages}
        for after in averages:
            self.register_parameter(str(after), nn.Parameter(torch.empty(after + 1)))

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer == 0:
            step.states[self.name] = [x]
        return x

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        streams: list[Tensor] = step.states[self.name]
        streams.append(x)
        weights: Tensor | None = getattr(self, str(layer + 1), None)
        if weights is None:
            return x
        return torch.stack([weight * stream for weight, stream in zip(weights, streams, strict=True)]).sum(0)
