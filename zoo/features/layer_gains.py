"""A learned factor on the stream after every layer."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Ground, Grounds, Operations
from zoo.errors import SpecError
from zoo.features import Feature, FeatureLayer, Model
from zoo.site import ForwardPass, PartCost


class LayerGains(Feature):
    """x ← s_l x after layer l, s_l a learned number, 1 at the start. Gemma 4 (Google 2026, `layer_scalar`),
    https://ai.google.dev/gemma/docs/core/model_card_4.

    x: (B, T, D), with the update of `per_layer_embeddings`, and all n streams where there are several. Layers that
    share weights have numbers of their own. With post-norm, too, the model then has a final norm.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.WHOLE_STREAM, Ground.FIXED_DEPTH})
    breaks: ClassVar[Grounds] = frozenset({Ground.ONE_END})
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    writes_after_layers: ClassVar[bool] = True

    @property
    def has_norms(self) -> bool:
        return False

    def check(self, model: Model) -> None:
        if any(layer.norm_placement.kind == "ngpt" for layer in model.layers):
            raise SpecError("", "nGPT keeps the stream on the unit sphere, which a scaled stream leaves")

    def build(self, model: Model) -> LayerGainsLayer:
        return LayerGainsLayer(model.n_layers)

    def cost(self, model: Model, context: int) -> PartCost:
        return PartCost(model.n_layers)


class LayerGainsLayer(FeatureLayer):
    """s: (L,)."""

    name: ClassVar[str] = "layer_gains"
    shell: ClassVar[int] = 5  # around `per_layer_embeddings`, and within what reads or keeps the output of a layer
    roles: ClassVar = {"factors": "gain"}

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(n_layers))

    def after(self, x: Tensor, layer: int, step: ForwardPass) -> Tensor:
        return x * self.factors[layer]
