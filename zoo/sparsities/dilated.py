"""Attention to every r-th earlier token."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attend import fastest
from zoo.attending.blocks import scores_computed
from zoo.attending.visible import Scoring, Visible
from zoo.compatibility.traits import OF_MODULES, OF_VALUES, Operations
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.sparsities import Sparsity, counted


class Dilated(Sparsity):
    """Token i sees i, i − r, i − 2r, …: W of them, or all. The dilated window of Longformer, Beltagy et al. 2020,
    arXiv:2004.05150, and without W the columns of the Sparse Transformer, Child et al. 2019, arXiv:1904.10509.

    Computed as windowed attention over r separate texts of T/r tokens, one for each residue of the position modulo r.
    """

    examples: ClassVar[Examples] = (
        {"window": 2, "dilation": 3},
        {"window": None, "dilation": 4},
    )
    kind: Literal["dilated"] = "dilated"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    window: Annotated[PositiveInt | None, MaxInTests(8)] = 64
    """W: number of keys that a token sees, itself included; null for no limit."""
    dilation: PositiveInt = 4
    """r: distance between neighbouring visible keys."""

    @property
    def reach(self) -> int | None:
        return None if self.window is None else (self.window - 1) * self.dilation + 1

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = queries - keys
        in_step = distance % self.dilation == 0
        return in_step if self.reach is None else in_step & (distance < self.reach)

    def pairs(self, context: int) -> int:
        each, more = divmod(context, self.dilation)
        return (self.dilation - more) * counted(each, self.window) + more * counted(each + 1, self.window)

    def computed(self, context: int) -> int:
        return self.dilation * scores_computed(-(-context // self.dilation), self.window)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        batch, _, length, _ = q.shape
        each = -(-length // self.dilation)
        padded = (F.pad(x, (0, 0, 0, each * self.dilation - length)) for x in (q, k, v))
        # One text for each residue: (B·r, heads, T/r, d)
        q, k, v = (x.unflatten(2, (each, self.dilation)).permute(0, 3, 1, 2, 4).flatten(0, 1) for x in padded)
        index = torch.arange(each, device=q.device)
        visible = Visible(index, index, self.window)
        mixed = fastest(q, k, v, visible, scoring)
        whole: Tensor = mixed.unflatten(0, (batch, self.dilation)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return whole[:, :, :length]
