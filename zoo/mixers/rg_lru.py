"""Real-gated linear recurrent unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import Operation, Operations
from zoo.conv import CONV, ShortConv, conv_cost, on_text
from zoo.ffns._activations import gelu_tanh
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import even
from zoo.mixers._diagonal import diagonal_states
from zoo.mixers._linear import Stateful, StatefulLayer, check_width
from zoo.mixers._scan import STATE, ScanCost
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import Features, Heads
from zoo.site import ForwardPass, LayerSite, PartCost

RATE = 8.0
"""c: power to which a recurrence gate of 1 raises a."""
SLOWEST, FASTEST = 0.999, 0.9
"""Range of the features' initial aᶜ."""
LEAST = 1e-7
"""Lower bound on 1 − a_t² under the root, whose gradient is infinite at 0."""


class RGLRU(Stateful):
    """h_t = a_t ⊙ h_{t−1} + √(1 − a_t²) ⊙ (i_t ⊙ v_t), log a_t = −c softplus(λ) ⊙ r_t, c = 8, r, i = σ(W v_t + b),
    out = W_o (gelu(W_g x) ⊙ h), v = conv(W_v x): (I). De et al. 2024 (Griffin), arXiv:2402.19427 §2.4; RecurrentGemma
    (arXiv:2404.07839).

    The matrices of r and i are block-diagonal with H blocks, each (I/H, I/H). The first token of a text is written
    without the root, as in the released code. Initial λ have aᶜ evenly spaced in [0.9, 0.999].
    """

    examples: ClassVar[Examples] = ({"chunk": 4, "heads": 3, "features": 15},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["rg_lru"] = "rg_lru"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    chunk: PositiveInt = 32
    """Tokens per chunk of the scan; changes speed, not results."""
    features: Features | None = None
    """I: features of the state; null for d_model."""
    heads: Heads = 4
    """H: blocks of the gates' matrices."""
    conv: PositiveInt = 4
    """Tokens in the window of the convolution of v."""
    bias: bool = True
    """Whether the projections that read and write the stream, and the convolution, have biases."""

    def resolve(self, d_model: int) -> Self:
        features = self.features or d_model
        check_width(self.heads, features, "features")
        return self.model_copy(update={"features": features})

    def build(self, site: LayerSite) -> MixerLayer:
        return RGLRULayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        features = number(self.features)
        return 3 * d_model * features + 2 * features * (features // self.heads)

    def vectors(self, d_model: int) -> int:
        features = number(self.features)
        return 3 * features + (2 * features + d_model) * self.bias

    def convolution(self) -> PartCost:
        return conv_cost(number(self.features), self.conv, self.bias)

    def scanning(self) -> ScanCost:
        """Zero: the recurrence is elementwise, without matrix products."""
        return ScanCost(0, 0, 0, 0, self.chunk)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        features = number(self.features)
        return {STATE: (features,), CONV: (self.conv - 1, features)}


class RGLRULayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: RGLRU, d_model: int) -> None:
        super().__init__(spec)
        features = number(spec.features)
        self.chunk = spec.chunk
        self.gate = Linear(d_model, features, bias=spec.bias, role="input")
        self.v = Linear(d_model, features, bias=spec.bias, role="input", values=True)
        self.conv = ShortConv(features, spec.conv, spec.bias)
        self.recur, self.admit = (BlockDiagonal(spec.heads, features) for _ in range(2))
        self.roles = {"rate": "bias"}
        kept = FASTEST + even(features) * (SLOWEST - FASTEST)  # aᶜ, so that softplus(λ) = −log(aᶜ) / c
        self.initial = {"rate": torch.expm1(-kept.log() / RATE).log().float()}
        self.rate = nn.Parameter(self.initial["rate"].clone())
        self.o = Linear(features, d_model, bias=spec.bias, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        v = self.conv(self.v(x), step, cache)
        kind = torch.promote_types(v.dtype, torch.float32)
        decay = -RATE * F.softplus(self.rate.to(kind)) * self.recur(v).to(kind).sigmoid()  # log a: (B, T, I)
        share = (-torch.expm1(2 * decay)).clamp(min=LEAST).sqrt()  # √(1 − a²)
        begins = (step.index == 0)[None] if step.left_pad is None else step.index == step.left_pad[:, None]
        share = share.masked_fill(begins[..., None], 1.0)
        added = on_text(share * self.admit(v).to(kind).sigmoid() * v, step)
        states = diagonal_states(added, decay, self.chunk, cache).to(v.dtype)
        return self.o(gelu_tanh(self.gate(x)) * states)


class BlockDiagonal(nn.Module):
    """x: (B, T, H·b) → W x + b, W of H blocks (b, b) on its diagonal."""

    roles: ClassVar = {"weight": "input", "bias": "bias"}

    def __init__(self, blocks: int, features: int) -> None:
        super().__init__()
        width = features // blocks
        self.weight = nn.Parameter(torch.empty(blocks, width, width))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unflatten(-1, (self.weight.shape[0], -1))[..., None, :]  # (B, T, H, 1, b)
        out: Tensor = (parts @ self.weight.transpose(-1, -2)).flatten(2) + self.bias
        return out
