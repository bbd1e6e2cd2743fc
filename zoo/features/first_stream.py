"""The stream that enters the first layer, added to what every other layer reads."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Ground, Grounds, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model
from zoo.site import ForwardPass, PartCost


class FirstStream(Feature):
    """x_l ← a_l x_l + b_l x_0 before each layer l ≥ 1, a_l and b_l learned numbers, 1 and 0 at the start. Jordan et al.
    2024 (modded-nanogpt, `x0_lambdas`), https://github.com/KellerJordan/modded-nanogpt.

    x_l: (B, T, D) enters layer l. x_0 is the embedded token as the first layer reads it, and all n streams where there
    are several. Layers that share weights have numbers of their own.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN

    @property
    def has_norms(self) -> bool:
        return False

    def check(self, model: Model) -> None:
        if model.n_layers < 2:
            raise SpecError("", "a single layer reads nothing but the first stream: n_layers must be at least 2")
        if any(layer.norm_placement.kind == "ngpt" for layer in model.layers):
            raise SpecError("", "nGPT keeps the stream on the unit sphere, which a sum of two streams leaves")

    def build(self, model: Model) -> FirstStreamLayer:
        return FirstStreamLayer(model.n_layers)

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(2 * (model.n_layers - 1))


class FirstStreamLayer(FeatureLayer):
    """a and b: (L − 1,), from layer 1 on."""

    name: ClassVar[str] = "first_stream"
    shell: ClassVar[int] = 5  # around a loop with injection, whose turns make x of it; within skips, which add to x
    roles: ClassVar = {"own": "gain", "first": "gain"}
    initial: ClassVar = {"first": 0.0}

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.ones(n_layers - 1))
        self.first = nn.Parameter(torch.zeros(n_layers - 1))

    def before(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if layer == 0:
            step.states[self.name] = x
            return x
        first: Tensor = step.states[self.name]
        return self.own[layer - 1] * x + self.first[layer - 1] * first
