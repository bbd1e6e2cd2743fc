"""T5's relative position buckets."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.positions import BiasLayer, Position, PositionLayer
from zoo.settings.axis import Examples
from zoo.site import ForwardPass


class T5(Position):
    """score(i, j) += b_h[bucket(i − j)], one table b for all layers of the model. Raffel et al. 2019,
    arXiv:1910.10683.

    The first n/2 of n buckets hold one distance each; the others hold distances up to `max_distance` on a logarithmic
    scale, the last one all longer distances. With a mask that shows later tokens, the first half of the buckets serves
    earlier tokens, the second half later ones, likewise. T5 does not divide QKᵀ by √d: set the mixer's `scale: 1.0`.
    """

    examples: ClassVar[Examples] = ({"buckets": 6, "max_distance": 11},)
    kind: Literal["t5"] = "t5"
    supports: ClassVar[Operations] = BY_TOKEN
    adds_to_scores: ClassVar[bool] = True
    takes_places: ClassVar[bool] = False
    buckets: Annotated[int, Field(ge=2)] = 32
    """n: number of distance buckets, each with a learned bias per head."""
    max_distance: PositiveInt = 128
    """Distance in tokens from which on all distances share the last bucket."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.max_distance <= self.buckets // 2:
            raise SpecError(
                "max_distance", f"must be more than buckets // 2 = {self.buckets // 2}, not {self.max_distance}"
            )
        return self

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return T5Layer(self, head_dim, heads)

    def build_shared(self, d_model: int, heads: int) -> nn.Module:
        return T5Table(self, heads)

    def shared_parameters(self, d_model: int, heads: int) -> int:
        return self.buckets * heads

    def check_ahead(self) -> None:
        if self.buckets < 4:
            raise SpecError("buckets", "must be at least 4 for bidirectional attention: near and far, before and after")

    def bucket(self, distance: Tensor, both_ways: bool = False) -> Tensor:
        """Bucket of distance = query position − key position, int64. Unless both_ways, later keys are in bucket 0, and
        the mask hides them."""
        if not both_ways:
            return self._bucket(distance.clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(distance.abs(), half) + half * (distance < 0)

    def _bucket(self, distance: Tensor, buckets: int) -> Tensor:
        """Bucket of a non-negative distance, among the first `buckets` buckets."""
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=exact).float() / exact) / math.log(self.max_distance / exact)
        far = exact + (ratio * (buckets - exact)).long()
        return torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


class T5Table(nn.Module):
    """distance: (T, S) → (H, T, S)."""

    roles: ClassVar = {"weight": "bias"}

    def __init__(self, spec: T5, heads: int) -> None:
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.zeros(spec.buckets, heads))

    def forward(self, distance: Tensor, both_ways: bool = False) -> Tensor:
        return self.weight[self.spec.bucket(distance, both_ways)].permute(2, 0, 1)


class T5Layer(BiasLayer[T5]):
    """A learned bias from the model's table."""

    def __init__(self, spec: T5, head_dim: int, heads: int) -> None:
        super().__init__(spec, head_dim, heads)
        self.table = spec.name_for(heads)

    def compute(self, step: ForwardPass, places: Tensor) -> Tensor:
        table = step.shared[self.table]
        out: Tensor = table(step.index[:, None] - places, step.mask_kind != "causal")
        return out
