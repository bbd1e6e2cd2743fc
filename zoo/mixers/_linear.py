"""Base of mixers that write keys and values into a state and read it with queries."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.caching.states import StateCache
from zoo.conv import CONV, ShortConv, conv_cost
from zoo.errors import SpecError, under
from zoo.init import Linear
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers._heads import default_head_dim, split
from zoo.mixers._scan import STATE, ScanCost, ScanCosts
from zoo.positions import Position
from zoo.projections import project_all
from zoo.settings.axis import number
from zoo.settings.field_tags import HeadFeatures, Heads
from zoo.site import ForwardPass, PartCost, matmul_cost

EPS = 1e-6
"""Constant added to squared norms before the root is taken."""


class Stateful(Mixer):
    """Mixer that caches a state of fixed size and is computed by a scan."""

    chunk: PositiveInt = 64
    """Tokens per chunk of the scan; changes speed, not results."""

    @abstractmethod
    def matrices(self, d_model: int) -> int:
        """Number of weights that are used once per token. Called on a resolved spec."""

    @abstractmethod
    def vectors(self, d_model: int) -> int:
        """Number of all other parameters, except the convolution's. Called on a resolved spec."""

    def convolution(self) -> PartCost:
        """Cost of the short convolution before the scan. Called on a resolved spec."""
        return PartCost(0)

    @abstractmethod
    def scanning(self) -> ScanCost | ScanCosts:
        """Cost of the scan, or the sum for several: the products without weights. Called on a resolved spec."""

    @abstractmethod
    def states(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of a sequence's cached tensors, by name. Called on a resolved spec."""

    def check_scan(self) -> None:
        if self.scanning().halves:
            check_chunk(self.chunk)

    def cost(self, d_model: int, context: int) -> PartCost:
        """Cost per token. The needed FLOPs are the recurrence's, final state included, whatever the chunk."""
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
    """Stateful mixer with heads of queries, keys and values."""

    heads: Heads = 4
    """H: number of heads of queries, keys and values."""
    head_dim: HeadFeatures | None = None
    """Features of a query and a key head; null for d_model / heads."""
    conv: PositiveInt | None = None
    """Tokens in the window of a causal convolution of queries, keys and values (Primer, arXiv:2109.08668); null for
    none."""

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
        """Features of queries, keys and values together."""
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
    """Base of mixers whose keys have half the features of their values by default."""

    head_dim: HeadFeatures | None = None
    """n: features of a query and a key head; null for d_model / (2 heads)."""
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
        """Project x to q, k: (B, H, T, n), and v: (B, H, T, p), after the convolution if there is one."""
        parts = project_all(x, self.q, self.k, self.v)
        if self.conv is not None:
            parts = self.conv(torch.cat(parts, dim=-1), step, cache).split(self.widths, dim=-1)
        q, k, v = (split(part, self.heads) for part in parts)
        return q, k, v


def check_chunk(chunk: int) -> None:
    """Raise SpecError unless the chunk is a power of two, so that it can be halved down to one token."""
    if chunk & (chunk - 1):
        raise SpecError("chunk", f"must be a power of two, not {chunk}")


def check_width(heads: int, width: int, name: str) -> None:
    """Raise SpecError if `heads` do not divide `width`, so that the setting `name` has no default."""
    if width % heads:
        reason = f"{heads} heads do not divide {width} features; set {name} to choose it freely"
        raise SpecError("heads", reason)


def sizes_in(spec: Any, d_model: int, shares: Mapping[str, int]) -> dict[str, int]:
    """Resolved `head_dim` and ranks of an RWKV mixer, whose heads have d_model features together. A null rank becomes
    d_model divided by its entry in `shares`, rounded down, at least 8. Raises SpecError for other features."""
    check_width(spec.heads, d_model, "heads")
    head_dim = d_model // spec.heads
    if spec.head_dim not in (None, head_dim):
        raise SpecError("head_dim", f"must be d_model / heads ({head_dim}), not {spec.head_dim}")
    return {"head_dim": head_dim} | {name: getattr(spec, name) or max(8, d_model // of) for name, of in shares.items()}


def check_turning(position: Position, features: int, kind: str) -> None:
    """Raise SpecError for a scheme that cannot rotate `features` features, or that adds to scores, which a mixer with a
    state does not have."""
    with under("position"):
        position.check(features)
    if position.adds_to_scores:
        raise SpecError("position", f"{position.kind} adds to attention scores, which {kind} does not have")


def unit(x: Tensor) -> Tensor:
    """x / √(Σ x² + ε) over the last dimension, ε = 1e-6: (…, d) of norm 1, in float32 or wider. Zero stays zero."""
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
