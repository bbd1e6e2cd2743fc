"""Learned absolute positions in two dimensions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, Operations
from zoo.init import Embedding
from zoo.positions import Position, PositionLayer
from zoo.positions.learned import check_length
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass


class TwoDimensional(Position):
    """Two learned vectors are added to the embedded token: of its place in the text, or of the blank that it fills, and
    of its place in the blank, 0 outside of blanks. Du et al. 2021 (GLM), arXiv:2103.10360 §2.1.

    A pass is told both (`places`, `block_places`); unless it is, tokens are where they stand, and in no blank. Each
    table has `length` rows; texts with further places are refused.
    """

    examples: ClassVar[Examples] = ({"length": 23},)
    kind: Literal["two_dimensional"] = "two_dimensional"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER
    absolute: ClassVar[bool] = True
    length: Annotated[PositiveInt, MaxInTests(512)] = 1024
    """Rows of each of the two tables: longest text, in tokens."""

    @property
    def longest(self) -> int | None:
        return self.length

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return PositionLayer()

    def build_shared(self, d_model: int, heads: int) -> nn.Module:
        return TwoTables(self, d_model)

    def shared_parameters(self, d_model: int, heads: int) -> int:
        return 2 * self.length * d_model


class TwoTables(nn.Module):
    """step → (T, D), or (B, T, D) where rows have their own places. Padding takes the vectors of place 0."""

    def __init__(self, spec: TwoDimensional, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.table = Embedding(spec.length, d_model)
        self.block_table = Embedding(spec.length, d_model)

    def forward(self, step: ForwardPass) -> Tensor:
        places = step.positions.clamp(min=0)
        blocks = torch.zeros_like(places) if step.block_places is None else step.block_places
        check_length(step, self.spec.length)
        return self.table(places) + self.block_table(blocks)
