"""An auxiliary next-token loss at every layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import NonNegativeFloat
from torch import Tensor

from zoo.compatibility.traits import Ground, Grounds, Operation, Operations
from zoo.features import Feature, FeatureLayer, Model, Predicting
from zoo.loss import next_token_loss
from zoo.site import ForwardPass, PartCost


class LayerLoss(Feature):
    """Adds weight · mean_l L_l to the objective: L_l is the next-token loss of the output of layer l, for all layers
    but the last, through the model's own final norm and head. Al-Rfou et al. 2018, arXiv:1808.04444, who drop the
    lower layers' losses as training proceeds."""

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = frozenset({Operation.WIDENING, Operation.SHARDING})

    weight: NonNegativeFloat
    """Weight of the mean layer loss in the training objective."""

    @property
    def has_norms(self) -> bool:
        return False

    def build(self, model: Model) -> LayerLosses:
        return LayerLosses(self.weight, model.n_layers)

    def training_cost(self, model: Model, context: int, memory: int) -> PartCost:
        closing = sum(feature.closing_flops(model) for feature in model.features.values())
        return PartCost.of(0, (model.n_layers - 1) * (model.read_out.flops + closing))


class LayerLosses(FeatureLayer):
    """Keeps the outputs of the lower layers until the objective reads them."""

    name: ClassVar[str] = "layer_loss"
    shell: ClassVar[int] = 7

    def __init__(self, weight: float, n_layers: int) -> None:
        super().__init__()
        self.weight, self.n_layers = weight, n_layers

    def begin(self, embedded: Tensor, step: ForwardPass) -> None:
        step.states[self.name] = []

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        if self.training and layer + 1 < self.n_layers:
            step.states[self.name].append(x)
        return x

    def objective(self, given: Predicting) -> Iterator[Tensor]:
        lower: list[Tensor] = given.step.states[self.name]
        head = given.head_after(given.norm)
        for x in lower:
            yield self.weight / len(lower) * next_token_loss(head, given.close(x), given.targets, count=given.count)[0]
