"""Skip connections from the lower half of the layers to the upper half."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.compatibility.traits import Ground, Grounds, Operation, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model
from zoo.site import ForwardPass, PartCost


class UNetSkips(Feature):
    """x_{L−1−i} ← x_{L−1−i} + w_i y_i for i < ⌊L/2⌋: a layer of the upper half also reads the output of its mirror
    image in the lower half. Jordan et al. 2024 (modded-nanogpt), https://github.com/KellerJordan/modded-nanogpt, after
    U-Net (Ronneberger et al. 2015, arXiv:1505.04597).

    x_l: (B, T, D) is the input of layer l, y_l its output; w = 1 at the start. If L is even, the lowest layer of the
    upper half reads the output of the layer below twice, as published.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = frozenset({Operation.LORA, Operation.SHARDING})

    @property
    def has_norms(self) -> bool:
        return False

    def check(self, model: Model) -> None:
        if model.n_layers < 2:
            raise SpecError("", "needs n_layers of at least 2")

    def build(self, model: Model) -> UNetSkipsLayer:
        return UNetSkipsLayer(model.n_layers)

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(model.n_layers // 2)


class UNetSkipsLayer(FeatureLayer):
    """Skip weights w; the lower outputs are stacked in the pass's state until their mirror layers read them."""

    name: ClassVar[str] = "skips"
    shell: ClassVar[int] = 6
    roles: ClassVar = {"weights": "gain"}

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.weights = nn.Parameter(torch.ones(n_layers // 2))

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        step.states[self.name] = []

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer < len(self.weights):
            step.states[self.name].append(x)
        return x

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        mirror = self.n_layers - 1 - layer
        return x + self.weights[mirror] * step.states[self.name].pop() if mirror < len(self.weights) else x
