"""Base of mixers that write keys and values into a state and read it with queries."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.caching.states import StateCache
from zoo.conv import CONV, ShortConv, conv_cost
from zoo.errors import SpecError, under
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers._heads import default_head_dim
from zoo.mixers._scan import STATE, ScanCost
from zoo.positions import Position
from zoo.settings.axis import number
from zoo.settings.field_tags import HeadFeatures, Heads
from zoo.site import ForwardPass, PartCost, matmul_cost

EPS = 1e-6
"""Constant added to squared lengths before normalising by them."""


class Stateful(Mixer):
    """A mixer whose cache is a state of fixed size, and whose products are those of `scan`."""

    chunk: PositiveInt = 64
    """Tokens that are computed at a time where there are several; no result depends on it."""

    @abstractmethod
    def matrices(self, d_model: int) -> int:
        """Weights that are used once per token. Called on a resolved spec."""

    @abstractmethod
    def vectors(self, d_model: int) -> int:
        """All other parameters, but for those of the convolution. Called on a resolved spec."""

    def convolution(self) -> PartCost:
        """Cost of the short convolution before the scan. Called on a resolved spec."""
        return PartCost(0)

    @abstractmethod
    def scanning(self) -> ScanCost:
        """The products that are not those of a weight. Called on a resolved spec."""

    @abstractmethod
    def states(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of what is kept of a sequence, by name. Called on a resolved spec."""

    def check_scan(self) -> None:
        if self.scanning().halves:
            check_chunk(self.chunk)

    def cost(self, d_model: int, context: int) -> PartCost:
        """Cost per token. FLOPs needed are the recurrence's, which leaves its state behind, whatever the chunk."""
        matrix, scanning = self.matrices(d_model), self.scanning()
        scan = PartCost(0, scanning.token, scanning.token, scanning.computed(context) / context)
        return matmul_cost(matrix + self.vectors(d_model), matrix) + self.convolution() + scan

    def cache_elements(self, capacity: int) -> int:
        return sum(math.prod(shape) for shape in self.states().values())


class StatefulLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    o: Linear

    def __init__(self, spec: Stateful) -> None:
        super().__init__()
        self.states = spec.states()

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return StateCache.zeros(batch, self.states, self.o.weight, dtype)


class LinearHeads(Stateful):
    """Heads of queries, keys and values."""

    heads: Heads = 4
    """H: number of heads of queries, keys and values."""
    head_dim: HeadFeatures | None = None
    """Features of a query and a key head; null for d_model / heads."""
    conv: PositiveInt | None = None
    """Tokens that a causal convolution of queries, keys and values sees (Primer, arXiv:2109.08668); null for none."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"head_dim": self.head_dim or default_head_dim(self.heads, d_model)})

    @property
    def key_features(self) -> int:
        """Key features per head of a resolved spec."""
        return number(self.head_dim)

    @property
    def value_features(self) -> int:
        """Value features per head of a resolved spec."""
        return self.key_features

    @property
    def channels(self) -> int:
        """Queries, keys and values together."""
        return self.heads * (2 * self.key_features + self.value_features)

    def matrices(self, d_model: int) -> int:
        return d_model * (self.channels + self.heads * self.value_features)

    def vectors(self, d_model: int) -> int:
        return 0

    def convolution(self) -> PartCost:
        return conv_cost(self.channels, self.conv)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        scanning = self.scanning()
        shapes = {STATE: (self.heads, scanning.key_features, scanning.features)}
        return shapes if self.conv is None else {**shapes, CONV: (self.conv - 1, self.channels)}

    def scanning(self) -> ScanCost:
        return ScanCost(self.heads, self.key_features, self.heads, self.value_features, self.chunk)


class HalfKeys(LinearHeads):
    """Base of mixers whose keys have half the features of their values, unless told otherwise."""

    head_dim: HeadFeatures | None = None
    """n; null for d_model / (2 heads)."""
    v_dim: HeadFeatures | None = None
    """Features of a value head; null for 2n."""

    def resolve(self, d_model: int) -> Self:
        if self.head_dim is None:
            check_width(2 * self.heads, d_model, "head_dim")
        head_dim = self.head_dim or d_model // (2 * self.heads)
        return self.model_copy(update={"head_dim": head_dim, "v_dim": self.v_dim or 2 * head_dim})

    @property
    def value_features(self) -> int:
        return number(self.v_dim)


class LinearHeadsLayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: LinearHeads, d_model: int) -> None:
        super().__init__(spec)
        keys, values = spec.heads * spec.key_features, spec.heads * spec.value_features
        self.heads, self.widths = spec.heads, (keys, keys, values)
        self.q = Linear(d_model, keys, role="input")
        self.k = Linear(d_model, keys, role="input")
        self.v = Linear(d_model, values, role="input", values=True)
        self.o = Linear(values, d_model, role="output")
        self.conv = ShortConv(spec.channels, spec.conv) if spec.conv else None

    def project(self, x: Tensor, step: ForwardPass, cache: LayerCache | None) -> tuple[Tensor, Tensor, Tensor]:
        """q, k: (B, H, T, n), v: (B, H, T, p)."""
        parts = self.q(x), self.k(x), self.v(x)
        if self.conv is not None:
            parts = self.conv(torch.cat(parts, dim=-1), step, cache).split(self.widths, dim=-1)
        q, k, v = (split(part, self.heads) for part in parts)
        return q, k, v


def check_chunk(chunk: int) -> None:
    """Raise SpecError for a chunk that cannot be halved down to one token."""
    if chunk & (chunk - 1):
        raise SpecError("chunk", f"must be a power of two, not {chunk}")


def check_width(heads: int, width: int, name: str) -> None:
    """Raise SpecError where heads do not divide a width, which leaves their size open."""
    if width % heads:
        reason = f"{heads} heads do not divide {width} features; set {name} to choose it freely"
        raise SpecError("heads", reason)


def check_turning(position: Position, features: int, kind: str) -> None:
    """Raise SpecError for a scheme that cannot turn queries and keys of a mixer without scores."""
    with under("position"):
        position.check(features)
    if position.adds_to_scores:
        raise SpecError("position", f"{kind} keeps a state and has no scores to which {position.kind} could add")


def split(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·d) → (B, H, T, d)."""
    out: Tensor = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    return out


def split_by(x: Tensor, features: int) -> Tensor:
    """(B, T, H·d) → (B, H, T, d), d the features of a head."""
    return split(x, x.shape[-1] // features)


def unit(x: Tensor) -> Tensor:
    """x / √(Σ x² + ε) over the last dimension, ε = 1e-6: (…, d) of length 1, in float32 or more. Zero stays zero."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + EPS)


class LowRank(nn.Module):
    """x: (…, D) → W₂ f(W₁ x) (+ b): (…, out), W₁: (r, D)."""

    def __init__(
        self,
        dim_in: int,
        rank: int,
        dim_out: int,
        *,
        bias: bool = False,
        between: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.down = Linear(dim_in, rank, role="input")
        self.up = Linear(rank, dim_out, bias=bias, role="input")
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        inner = self.down(x)
        return self.up(inner if self.between is None else self.between(inner))
