"""Mamba-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import CONV, ShortConv, conv_cost, on_text
from zoo.errors import SpecError
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import Decay
from zoo.mixers._heads import NormPerHead, split
from zoo.mixers._linear import Stateful, StatefulLayer, check_width
from zoo.mixers._scan import STATE, ScanCost, scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples, is_off, number
from zoo.settings.field_tags import HeadFeatures, Heads, MaxInTests, ValuesInTests
from zoo.site import ForwardPass, LayerSite, PartCost

Factors = Annotated[tuple[PositiveFloat, ...], Field(min_length=5, max_length=5, strict=False)]


class Mamba2(Stateful):
    """S_t = exp(−A Δ_t) S_{t−1} + Δ_t b_t x_tᵀ, y_t = S_tᵀ c_t + D x_t, out = W_o norm(y ⊙ silu(W_z u)). Dao & Gu 2024,
    arXiv:2405.21060.

    x, b, c = silu(conv(W u)): x has H heads of P features, b and c have N features per group of heads. Δ = softplus(W_Δ
    u + β), A and D are one number per head. The norm is over each group's heads. Decoding caches S and the
    convolution's last inputs, for any context.
    """

    examples: ClassVar[Examples] = ({"head_dim": 12, "state": 5, "groups": 2, "chunk": 8},)
    kind: Literal["mamba2"] = "mamba2"
    supports: ClassVar[Operations] = OF_MODULES
    heads: Heads = 4
    """H: number of heads of x."""
    head_dim: HeadFeatures | None = None
    """P: features of a head of x; null for 2 d_model / heads."""
    state: Annotated[PositiveInt, MaxInTests(16)] = 128
    """N: features of b and c; a head's state is (N, P)."""
    groups: Annotated[PositiveInt, MaxInTests(4)] = 1
    """Number of groups of heads that share b and c."""
    conv: PositiveInt = 4
    """Tokens in the window of the convolution of x, b and c."""
    conv_bias: bool = True
    """Whether the convolution of x, b and c has a bias."""
    activation: PlainActivation = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Activation after the convolution."""
    step_min: NonNegativeFloat = Field(default=0.0, exclude_if=is_off)
    """Lower bound of Δ."""
    step_max: PositiveFloat | None = Field(default=None, exclude_if=is_off)
    """Upper bound of Δ; null for none."""
    scales: Annotated[
        Factors | None, Field(exclude_if=is_off), ValuesInTests([0.5, 2, 0.7, 0.6, 1.5], paired=False)
    ] = None
    """Factors on the projections W u of z, x, b, c and Δ (Falcon-H1, arXiv:2507.22448); null for 1."""
    bias: bool = False
    """Whether the projections have biases."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of the gated output y ⊙ silu(W_z u), over each group's heads."""

    def resolve(self, d_model: int) -> Self:
        if self.head_dim is None:
            check_width(self.heads, 2 * d_model, "head_dim")
        if self.heads % self.groups:
            raise SpecError("groups", f"{self.groups} groups do not divide {self.heads} heads")
        return self.model_copy(update={"head_dim": self.head_dim or 2 * d_model // self.heads})

    @property
    def features(self) -> int:
        """P of a resolved spec."""
        return number(self.head_dim)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Features of x, b and c."""
        return self.heads * self.features, self.groups * self.state, self.groups * self.state

    def build(self, site: LayerSite) -> MixerLayer:
        return Mamba2Layer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return d_model * (2 * self.widths[0] + sum(self.widths) + self.heads)

    def vectors(self, d_model: int) -> int:
        inner = self.widths[0]
        biases = (inner + sum(self.widths) + self.heads + d_model) * self.bias
        return 3 * self.heads + self.groups * self.head_norm.parameters(inner // self.groups) + biases

    def convolution(self) -> PartCost:
        return conv_cost(sum(self.widths), self.conv, self.conv_bias)

    def scanning(self) -> ScanCost:
        return ScanCost(self.groups, self.state, self.heads, self.features, self.chunk)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        return {STATE: (self.heads, self.state, self.features), CONV: (self.conv - 1, sum(self.widths))}


class Mamba2Layer(StatefulLayer):
    """u: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Mamba2, d_model: int) -> None:
        super().__init__(spec)
        self.spec = spec
        inner, states, _ = spec.widths
        self.gate = Linear(d_model, inner, bias=spec.bias, role="input")
        self.x = Linear(d_model, inner, bias=spec.bias, role="input", values=True)
        self.b, self.c = (Linear(d_model, states, bias=spec.bias, role="input") for _ in range(2))
        self.forget = Linear(d_model, spec.heads, bias=spec.bias, role="input")
        self.conv = ShortConv(sum(spec.widths), spec.conv, spec.conv_bias)
        self.activation = UNGATED[spec.activation]
        self.decay = Decay(spec.heads, spec.step_min, spec.step_max)
        self.skip = nn.Parameter(torch.ones(spec.heads))
        self.head_norm = NormPerHead(spec.head_norm, spec.groups, inner // spec.groups)
        self.o = Linear(inner, d_model, bias=spec.bias, role="output")
        self.roles = {"skip": "gain"}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        spec = self.spec
        projected = [part(x) for part in (self.gate, self.x, self.b, self.c, self.forget)]
        if spec.scales is not None:
            projected = [scale * part for scale, part in zip(spec.scales, projected, strict=True)]
        gate, *joined, step_size = projected
        convolved = self.activation(self.conv(torch.cat(joined, dim=-1), step, cache))
        parts = on_text(convolved, step).split(spec.widths, dim=-1)
        values, k, q = (split(part, n) for part, n in zip(parts, (spec.heads, spec.groups, spec.groups), strict=True))
        delta, decay = self.decay(step_size)
        mixed = scan(q, k, values * delta[..., None], decay, spec.chunk, cache)
        mixed = (mixed + self.skip[:, None, None] * values).to(x.dtype)
        gated = mixed.transpose(1, 2).flatten(2) * F.silu(gate)
        return self.o(self.head_norm(split(gated, spec.groups)).transpose(1, 2).flatten(2))
