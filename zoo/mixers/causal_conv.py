"""Causal convolution."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import Features
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost

STATE = "tokens"
"""Cache name of the tokens that the convolution of later ones reads."""


class CausalConv(Mixer):
    """out = W_o (tanh(K ∗ v) ⊙ σ(G ∗ v)), v = W_v x: (I), (K ∗ v)_t = Σ_i K_i v_{t − i·δ}, i = 0 … W − 1, K_i and G_i:
    (I, I). Van den Oord et al. 2016 (WaveNet), arXiv:1609.03499 eq. 2, between projections as in ByteNet
    (arXiv:1610.10099).

    Without the gate, out = W_o max(0, K ∗ v), as in temporal convolutional networks (Bai et al. 2018,
    arXiv:1803.01271). WaveNet's layers have a dilation δ of 1, 2, 4 …: a pattern of `blocks`.
    """

    examples: ClassVar[Examples] = ({"width": 3, "dilation": 2, "features": 20},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["causal_conv"] = "causal_conv"
    supports: ClassVar[Operations] = OF_MODULES
    features: Features | None = None
    """I; null for d_model."""
    width: Annotated[int, Field(ge=2)] = 2
    """W: tokens that the convolution reads, the current one included."""
    dilation: PositiveInt = 1
    """δ: distance, in tokens, between the tokens that are read."""
    gated: bool = True
    """Whether a second convolution gates the first."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"features": self.features or d_model})

    def build(self, site: LayerSite) -> MixerLayer:
        return CausalConvLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        features = number(self.features)
        matrices = 2 * d_model * features + (1 + self.gated) * self.width * features**2
        return matmul_cost(matrices, matrices)

    @property
    def reach(self) -> int:
        """Distance, in tokens, to the earliest token that is read."""
        return (self.width - 1) * self.dilation

    def cache_elements(self, capacity: int) -> int:
        return self.reach * number(self.features)


class CausalConvLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: CausalConv, d_model: int) -> None:
        super().__init__()
        self.spec, features = spec, number(spec.features)
        self.v = Linear(d_model, features, role="input", values=True)
        self.kernel = Linear(spec.width * features, features, role="input")
        self.gate = Linear(spec.width * features, features, role="input") if spec.gated else None
        self.o = Linear(features, d_model, role="output")

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        shape = {STATE: (self.spec.reach, number(self.spec.features))}
        return StateCache.zeros(batch, shape, self.o.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        states = kept_by(self, cache, StateCache)
        v, length, reach = on_text(self.v(x), step), x.shape[1], self.spec.reach
        before = None if states is None else states.read(STATE, v.dtype)
        v = F.pad(v, (0, 0, reach, 0)) if before is None else torch.cat((before, v), dim=1)
        if states is not None:
            states.write(STATE, v[:, length:])
        # (B, T, W·I): the tokens that each one reads, oldest first, so that one product replaces W.
        seen = torch.cat([v[:, i : i + length] for i in range(0, reach + 1, self.spec.dilation)], dim=-1)
        mixed = self.kernel(seen)
        return self.o(F.relu(mixed) if self.gate is None else mixed.tanh() * self.gate(seen).sigmoid())
