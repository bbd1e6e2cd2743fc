"""Learned absolute positions in two dimensions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.init import Embedding
from zoo.positions import Position, PositionLayer
from zoo.positions.learned import check_length
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass


class TwoDimensional(Position):
    """Adds two learned vectors to the embedded token: one for its position in the text, or that of the blank it fills,
    and one for its position in the blank, 0 outside blanks. Du et al. 2021 (GLM), arXiv:2103.10360 §2.1.

    Callers pass both positions (`places`, `block_places`); by default tokens are at their own positions, in no blank.
    Each table has `length` rows; texts with positions beyond it are refused.
    """

    examples: ClassVar[Examples] = ({"length": 23},)
    kind: Literal["two_dimensional"] = "two_dimensional"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
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
    """step → (T, D), or (B, T, D) if rows have their own positions. Padding takes the vectors of position 0."""

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
