"""Attention to a window and to global tokens."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import OF_MODULES, OF_VALUES, Operations
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.sparsities import counted
from zoo.sparsities._gathered import Gathered


class Longformer(Gathered):
    """Token i sees j ≤ i where i − j < W, or j < g. Beltagy et al. 2020, arXiv:2004.05150, causal.

    All tokens see the first g tokens of a text; the causal mask keeps these from seeing all others in turn. The paper
    has windows of 512 and separate projections for global tokens, which are not implemented.
    """

    examples: ClassVar[Examples] = ({"window": 3, "global_tokens": 2},)
    kind: Literal["longformer"] = "longformer"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    window: Annotated[PositiveInt, MaxInTests(8)] = 64
    """W: a token sees itself and the W − 1 before it."""
    global_tokens: NonNegativeInt = 1
    """g: number of first tokens of a text, which all tokens see."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (queries - keys < self.window) | ((keys >= 0) & (keys < self.global_tokens))

    def pairs(self, context: int) -> int:
        return counted(context, self.window) + counted(max(0, context - self.window), self.global_tokens)

    @property
    def queries_at_once(self) -> int:
        return self.window

    @property
    def keys_at_once(self) -> int:
        return 2 * self.window - 1 + self.global_tokens

    def keys_of(self, blocks: Tensor) -> Tensor:
        first = blocks * self.window - (self.window - 1)
        near = first + torch.arange(2 * self.window - 1, device=blocks.device)
        far = torch.arange(self.global_tokens, device=blocks.device).expand(len(blocks), -1)
        return torch.cat((near, far.masked_fill(far >= first, -1)), dim=1)
