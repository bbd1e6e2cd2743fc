"""LAuReL: a learned low-rank path alongside the residual around the mixer."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.block_features import BlockFeature
from zoo.compatibility.traits import NONE, Grounds, Operation, Operations
from zoo.init import Linear
from zoo.settings.field_tags import Fact
from zoo.site import PartCost, matmul_cost


class Laurel(BlockFeature):
    """y = (x + f(h) + h + norm(B A h)) / √2 around the mixer, h = norm(x), A: (r, D), B: (D, r). LAuReL, Menghani et
    al. 2024, arXiv:2411.07501, in the form of Gemma 3n (Google 2025, https://ai.google.dev/gemma/docs/gemma-3n).

    The paper's low-rank form is x + f(h) + B A x, around any branch. f is the mixer with the norm after it, if any.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = frozenset({Operation.LORA, Operation.SHARDING})

    rank: Annotated[PositiveInt, Fact.WIDTH] = 64
    """r: rank of B A."""

    def build(self, norm: nn.Module, d_model: int) -> LaurelLayer:
        return LaurelLayer(norm, d_model, self.rank)

    def cost(self, d_model: int, norm: int) -> PartCost:
        matrices = 2 * d_model * self.rank
        return matmul_cost(matrices + norm, matrices)


class LaurelLayer(nn.Module):
    """x: (B, T, D), the stream with the mixer's update, and h: (B, T, D) → (B, T, D)."""

    def __init__(self, norm: nn.Module, d_model: int, rank: int) -> None:
        super().__init__()
        self.down = Linear(d_model, rank, role="input")
        self.up = Linear(rank, d_model, role="output")
        self.norm = norm

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        out: Tensor = (x + h + self.norm(self.up(self.down(h)))) / math.sqrt(2)
        return out
