"""Mamba."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import CONV, ShortConv, conv_cost, on_text
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import first_steps
from zoo.mixers._diagonal import DiagonalCost, diagonal_scan
from zoo.mixers._linear import Stateful, StatefulLayer
from zoo.mixers._scan import STATE, ScanCost
from zoo.norms import Norm
from zoo.settings.axis import Choice, Examples, is_off, number
from zoo.settings.field_tags import Features, MaxInTests
from zoo.site import ForwardPass, LayerSite, PartCost


class Mamba(Stateful):
    """S_t = exp(−A Δ_t) ⊙ S_{t−1} + (Δ_t ⊙ x_t) b_tᵀ, y_t = S_t c_t + D ⊙ x_t, out = W_o (y ⊙ silu(W_z u)). Gu & Dao
    2023, arXiv:2312.00752.

    x = silu(conv(W_x u)): I features; Δ = softplus(W₂ δ + β): (I), with δ: (R), b and c: (N) projected from x.
    A: (I, N) is e^a, initially 1, 2, … N for every feature. Jamba (Lieber et al. 2024, arXiv:2403.19887) and Falcon
    Mamba normalise δ, b and c (`part_norm`).
    """

    examples: ClassVar[Examples] = ({"state": 5, "rank": 3, "chunk": 4, "part_norm": {"kind": "rmsnorm"}},)
    kind: Literal["mamba"] = "mamba"
    supports: ClassVar[Operations] = OF_MODULES
    chunk: PositiveInt = 16
    """Tokens per chunk of the scan; changes speed, not results."""
    inner: Features | None = None
    """I: features of x; null for 2 d_model."""
    state: Annotated[PositiveInt, MaxInTests(16)] = 16
    """N: state size per feature of x."""
    rank: Features | None = None
    """R: features of δ; null for ⌈d_model / 16⌉."""
    conv: PositiveInt = 4
    """Tokens in the window of the convolution of x."""
    conv_bias: bool = True
    """Whether the convolution of x has a bias."""
    activation: PlainActivation = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Activation after the convolution."""
    bias: bool = False
    """Whether the projections that read and write the stream have biases."""
    part_norm: Annotated[Norm, Choice("zoo.norms")] | None = Field(default=None, exclude_if=is_off)
    """Separate norms of δ, b and c."""

    def resolve(self, d_model: int) -> Self:
        sizes = {"inner": self.inner or 2 * d_model, "rank": self.rank or math.ceil(d_model / 16)}
        return self.model_copy(update=sizes)

    def sizes(self) -> tuple[int, int]:
        """(I, R) of a resolved spec."""
        return number(self.inner), number(self.rank)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Features of δ, b and c."""
        return self.sizes()[1], self.state, self.state

    def build(self, site: LayerSite) -> MixerLayer:
        return MambaLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        inner, rank = self.sizes()
        return 3 * d_model * inner + inner * (sum(self.widths) + rank)

    def vectors(self, d_model: int) -> int:
        inner, _ = self.sizes()
        norms = 0 if self.part_norm is None else sum(self.part_norm.parameters(width) for width in self.widths)
        return inner * (self.state + 2) + (2 * inner + d_model) * self.bias + norms

    def convolution(self) -> PartCost:
        return conv_cost(self.sizes()[0], self.conv, self.conv_bias)

    def scanning(self) -> ScanCost:
        return DiagonalCost(1, self.state, 1, self.sizes()[0], self.chunk)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        inner, _ = self.sizes()
        return {STATE: (inner, self.state), CONV: (self.conv - 1, inner)}


class MambaLayer(StatefulLayer):
    """u: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Mamba, d_model: int) -> None:
        super().__init__(spec)
        inner, rank = spec.sizes()
        self.chunk, self.widths, self.activation = spec.chunk, spec.widths, UNGATED[spec.activation]
        self.x = Linear(d_model, inner, bias=spec.bias, role="input", values=True)
        self.gate = Linear(d_model, inner, bias=spec.bias, role="input")
        self.conv = ShortConv(inner, spec.conv, spec.conv_bias)
        self.parts = Linear(inner, sum(spec.widths), role="input")
        norm = spec.part_norm
        self.part_norms = nn.ModuleList(nn.Identity() if norm is None else norm.build(width) for width in spec.widths)
        self.step = Linear(rank, inner, role="input")
        self.roles = {"log_rate": "bias", "step_bias": "bias", "skip": "gain"}
        rates = torch.arange(1, spec.state + 1).float().log().expand(inner, -1)
        self.initial = {"log_rate": rates, "step_bias": first_steps(inner)}
        self.log_rate = nn.Parameter(rates.clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())
        self.skip = nn.Parameter(torch.ones(inner))
        self.o = Linear(inner, d_model, bias=spec.bias, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        read = on_text(self.activation(self.conv(self.x(x), step, cache)), step)
        parts = self.parts(read).split(self.widths, dim=-1)
        low, b, c = (norm(part) for norm, part in zip(self.part_norms, parts, strict=True))
        kind = torch.promote_types(x.dtype, torch.float32)
        delta = F.softplus(self.step(low).to(kind) + self.step_bias.to(kind))
        decay = -self.log_rate.to(kind).exp() * delta[..., None]
        mixed = diagonal_scan(c, b, delta * read, decay, self.chunk, cache) + self.skip * read
        return self.o(mixed.to(x.dtype) * F.silu(self.gate(x)))
