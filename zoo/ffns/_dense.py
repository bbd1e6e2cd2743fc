"""Shared code of ungated and gated feed-forward layers."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import partial
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, PlainValidator, PositiveFloat, PositiveInt, WithJsonSchema
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import ALL_BUT_TRANSFER, EVERY_OPERATION, OF_MODULES
from zoo.conv import ShortConv, conv_cost
from zoo.ffns import Ffn, FfnLayer
from zoo.ffns._activations import GATED, UNGATED, Activation, sparse
from zoo.init import Linear
from zoo.projections import project_all
from zoo.settings.axis import is_off, number
from zoo.settings.field_tags import LARGEST, Dropout, Fact, Supports, ValuesInTests
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost

RATIO = re.compile(r"(\d+(?:\.\d+)?)(?:/(\d+))?x")


def _check(value: Any) -> Any:
    match = RATIO.fullmatch(value) if isinstance(value, str) else None
    times = Fraction(match[1]) if match and int(match[2] or 1) else value
    if isinstance(times, int | Fraction) and not isinstance(times, bool) and 0 < times <= LARGEST:
        return value
    raise ValueError("must be a positive whole number or a ratio to d_model such as 4x or 8/3x")


Width = Annotated[
    int | str,
    PlainValidator(_check),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": f"^{RATIO.pattern}$"},
            ]
        }
    ),
]
Scales = Annotated[tuple[PositiveFloat, PositiveFloat], Field(strict=False)]


def features(width: int | str, d_model: int, multiple_of: int) -> int:
    """A width as a number of features. Ratios are rounded to the nearest multiple of `multiple_of` (halves up, at
    least one multiple); numbers stay as they are. Raises ValueError for a string that is no ratio."""
    if isinstance(width, int):
        return width
    match = RATIO.fullmatch(width)
    if match is None:
        raise ValueError(f"not a ratio: {width}")
    exact = Fraction(match[1]) / int(match[2] or 1) * d_model
    return max(1, int(exact / multiple_of + Fraction(1, 2))) * multiple_of


def _sparse(activation: Activation, quantile: float, first: Tensor, *others: Tensor) -> Tensor:
    """act(sparse(first), *others). quantile: a float, since torch.compile cannot trace its computation."""
    return activation(sparse(first, quantile), *others)


def _scaled(activation: Activation, of_gate: float, of_hidden: float, gate: Tensor, up: Tensor) -> Tensor:
    return of_hidden * activation(of_gate * gate, up)


class Wide(Ffn):
    """Base of layers whose number of hidden features may be a ratio to d_model."""

    d_ff: Annotated[Width, Fact.SIZE, Fact.WIDTH] = "4x"
    """Hidden features: a number, or a ratio to d_model."""
    multiple_of: Annotated[PositiveInt, ValuesInTests()] = 8
    """A ratio is rounded to the nearest multiple of this."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"d_ff": features(self.d_ff, d_model, self.multiple_of), "multiple_of": 1})

    @property
    def width(self) -> int:
        """F: hidden features of a resolved spec."""
        return number(self.d_ff if isinstance(self.d_ff, int) else None)


class Dense(Wide):
    """y = W_down act(W_up x)."""

    gated: ClassVar[bool] = False
    bias: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether the matrices have biases."""
    dropout: Dropout = 0.0
    """Dropout probability of the hidden features in training."""
    conv: Annotated[PositiveInt | None, Supports(*ALL_BUT_TRANSFER)] = Field(default=None, exclude_if=is_off)
    """Width in tokens of a causal convolution of each hidden feature, before the activation (position D of
    Allen-Zhu 2025, arXiv:2512.17351); null for none."""
    sparsity: Annotated[float, Field(ge=0, lt=1, exclude_if=is_off), ValuesInTests(0.3), Supports(*OF_MODULES)] = 0.0
    """Approximate share of the hidden features that a threshold, computed from their mean and standard deviation, sets
    to zero before the activation (Gemma 3n); 0 for no threshold."""

    def hidden(self) -> Activation:
        """The activation: act(up), or act(gate, up) if the layer is gated."""
        return (GATED if self.gated else UNGATED)[self.kind]

    def build(self, site: LayerSite) -> FfnLayer:
        conv = ShortConv(self.channels, self.conv) if self.conv else None
        settings = {"gated": self.gated, "bias": self.bias, "dropout": self.dropout, "conv": conv}
        return self.layer(site.d_model, activation=self.activated(), **settings)

    def activated(self) -> Activation:
        """The activation, of thresholded features with `sparsity`."""
        return partial(_sparse, self.hidden(), NormalDist().inv_cdf(self.sparsity)) if self.sparsity else self.hidden()

    def layer(self, d_model: int, **settings: Any) -> FfnLayer:
        """The module with these settings."""
        return DenseLayer(d_model, self.width, **settings)

    @property
    def channels(self) -> int:
        """Outputs of the up and gate projections of a resolved spec: F, or 2F if gated."""
        return (1 + self.gated) * self.width

    def cost(self, d_model: int) -> PartCost:
        return dense_cost(d_model, self.width, self.gated, self.bias) + conv_cost(self.channels, self.conv)

    @property
    def reaches_back(self) -> bool:
        return self.conv is not None

    def cache_elements(self, d_model: int) -> int:
        return self.channels * ((self.conv or 1) - 1)


class Gated(Dense):
    """y = W_down (act(W_gate x) ⊙ W_up x). Shazeer 2020, arXiv:2002.05202."""

    gated: ClassVar[bool] = True
    d_ff: Width = "8/3x"
    scales: Annotated[
        Scales | None, Field(exclude_if=is_off), ValuesInTests([2, 3], paired=False), Supports(*OF_MODULES)
    ] = None
    """Factors on W_gate x and on the hidden features (Falcon-H1, arXiv:2507.22448); null for 1."""

    def activated(self) -> Activation:
        return partial(_scaled, super().activated(), *self.scales) if self.scales else super().activated()


def dense_cost(d_model: int, d_ff: int, gated: bool, bias: bool) -> PartCost:
    """Cost of one dense feed-forward layer."""
    matrix = (2 + gated) * d_model * d_ff
    return matmul_cost(matrix + bias * ((1 + gated) * d_ff + d_model), matrix)


class DenseLayer(FfnLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Activation,
        *,
        gated: bool,
        bias: bool,
        dropout: float = 0.0,
        conv: ShortConv | None = None,
    ) -> None:
        super().__init__(conv)
        self.activation = activation
        self.gate = Linear(d_model, d_ff, bias=bias, role="input") if gated else None
        self.up = Linear(d_model, d_ff, bias=bias, role="input")
        self.down = Linear(d_ff, d_model, bias=bias, role="output")
        self.dropout = nn.Dropout(dropout)
        self._drops = dropout > 0

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        parts = self.project(x)
        if self.conv is not None:
            parts = self.conv(torch.cat(parts, dim=-1), step, cache).chunk(len(parts), dim=-1)
        return self.down(self._dropped(self.activation(*parts)))

    def weighted(self, x: Tensor, weights: Tensor, step: ForwardPass) -> Tensor:
        """Σ_e w_e FFN_e(x), if the hidden features are a concatenation of several experts' features. weights:
        (B, T, experts)."""
        hidden = self.activation(*self.project(x)).unflatten(-1, (weights.shape[-1], -1))
        return self.down(self._dropped((hidden * weights[..., None].to(hidden.dtype)).flatten(-2)))

    def _dropped(self, hidden: Tensor) -> Tensor:
        return self.dropout(hidden) if self._drops else hidden

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Inputs of the activation: up, or gate and up."""
        return (self.up(x),) if self.gate is None else project_all(x, self.gate, self.up)
