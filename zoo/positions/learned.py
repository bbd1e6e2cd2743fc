"""Learned absolute positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, EVERY_OPERATION, Operations
from zoo.init import Embedding
from zoo.positions import Position, PositionLayer
from zoo.refusals import most
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests, Supports
from zoo.site import ForwardPass


class Learned(Position):
    """Adds a learned vector per position to the embedded tokens. Radford et al. 2018 (GPT); Gehring et al. 2017,
    arXiv:1705.03122.

    Texts of more than `length` tokens are refused. The table has `offset` rows before that of position 0 (2 in OPT).
    """

    examples: ClassVar[Examples] = ({"length": 23, "offset": 2},)
    kind: Literal["learned"] = "learned"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    absolute: ClassVar[bool] = True
    length: Annotated[PositiveInt, MaxInTests(512)] = 1024
    """Number of positions in the table: the longest text, in tokens."""
    offset: Annotated[NonNegativeInt, Supports(*EVERY_OPERATION)] = 0
    """Rows of the table before that of position 0 (2 in OPT)."""

    @property
    def longest(self) -> int | None:
        return self.length

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return PositionLayer()

    def build_shared(self, d_model: int, heads: int) -> nn.Module:
        return LearnedTable(self, d_model)

    def shared_parameters(self, d_model: int, heads: int) -> int:
        return (self.length + self.offset) * d_model


class LearnedTable(nn.Module):
    """step → (T, D), or (B, T, D) if rows have their own positions. Padding takes the vector of position 0."""

    def __init__(self, spec: Learned, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.table = Embedding(spec.length + spec.offset, d_model)

    def forward(self, step: ForwardPass) -> Tensor:
        check_length(step, self.spec.length)
        return self.table(step.positions.clamp(min=0) + self.spec.offset)


def check_length(step: ForwardPass, length: int) -> None:
    """Raise ValueError if a pass has positions beyond `length`, unless finding out would synchronise the device."""
    for end in _ends(step):
        if end is not None and end > length:
            raise ValueError(f"a text of {end} tokens is longer than the {length} learned positions")


def _ends(step: ForwardPass) -> Iterator[int | None]:
    """Number of positions that a pass needs, one for each source of positions; None if it cannot be read."""
    for places in (step.places, step.block_places):
        if places is not None:
            last = most(places)
            yield None if last is None else last + 1
    if step.places is None:
        padding = 0 if step.left_pad is None else most(-step.left_pad)
        yield None if padding is None else step.end + padding
