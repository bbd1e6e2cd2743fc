"""Gated short convolution."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import ShortConv, conv_cost
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import Features
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class GatedShortConv(Mixer):
    """out = W_o (C ⊙ conv(B ⊙ V)), B, C, V = W x: (I) each, conv depthwise over the last W tokens. Liquid AI 2025
    (LFM2), arXiv:2511.23404.

    The gates B and C are linear, without an activation.
    """

    examples: ClassVar[Examples] = ({"width": 3, "bias": True, "features": 20},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["short_conv"] = "short_conv"
    supports: ClassVar[Operations] = OF_MODULES
    degree: ClassVar[int] = 3
    features: Features | None = None
    """I: features that are convolved; null for d_model."""
    width: Annotated[int, Field(ge=2)] = 3
    """W: tokens that the convolution reads, the current one included."""
    bias: bool = False
    """Whether the projections and the convolution have biases."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"features": self.features or d_model})

    def build(self, site: LayerSite) -> MixerLayer:
        return GatedShortConvLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        features = number(self.features)
        matrices, biases = 4 * d_model * features, (3 * features + d_model) * self.bias
        return matmul_cost(matrices + biases, matrices) + conv_cost(features, self.width, self.bias)

    def cache_elements(self, capacity: int) -> int:
        return (self.width - 1) * number(self.features)


class GatedShortConvLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: GatedShortConv, d_model: int) -> None:
        super().__init__()
        features = number(spec.features)
        self.before, self.after = (Linear(d_model, features, bias=spec.bias, role="input") for _ in range(2))
        self.v = Linear(d_model, features, bias=spec.bias, role="input", values=True)
        self.conv = ShortConv(features, spec.width, spec.bias)
        self.o = Linear(features, d_model, bias=spec.bias, role="output")

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return self.conv.new_cache(batch, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        return self.o(self.after(x) * self.conv(self.before(x) * self.v(x), step, cache))
