"""LAuReL: a learned low-rank path alongside the residual around the mixer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.block_features import BlockFeature, BlockFeatureLayer, Parts, Place
from zoo.compatibility.traits import NONE, Grounds, Operation, Operations
from zoo.errors import SpecError
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

    def check(self, block: Parts) -> None:
        placement = block.norm_placement
        if block.mixer.absent or block.topology != "serial":
            raise SpecError("", "needs a mixer and topology serial")
        if placement.streams is not None or not placement.additive:
            raise SpecError("", f"needs an additive residual on a stream of (B, T, D), not {placement.kind}")

    def build(self, d_model: int, norm: Callable[[], nn.Module]) -> LaurelLayer:
        return LaurelLayer(norm(), d_model, self.rank)

    def cost(self, d_model: int, norm: int) -> PartCost:
        matrices = 2 * d_model * self.rank
        return matmul_cost(matrices + norm, matrices)


class LaurelLayer(BlockFeatureLayer):
    """x: (B, T, D), the stream with the mixer's update, and h: (B, T, D) → (B, T, D)."""

    name: ClassVar[str] = "laurel"
    order: ClassVar[int] = 0

    def __init__(self, norm: nn.Module, d_model: int, rank: int) -> None:
        super().__init__()
        self.down = Linear(d_model, rank, role="input")
        self.up = Linear(rank, d_model, role="output")
        self.norm = norm

    def after(self, branch: Place, x: Tensor, h: Tensor) -> Tensor:
        if branch != "mixer":
            return x
        out: Tensor = (x + h + self.norm(self.up(self.down(h)))) / math.sqrt(2)
        return out
