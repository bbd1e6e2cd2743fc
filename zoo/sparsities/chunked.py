"""Attention within chunks that do not see each other."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attending import fused
from zoo.attending.blocks import fold, unfold
from zoo.attending.visible import Scoring, Visible
from zoo.compatibility.traits import OF_MODULES, OF_VALUES, Operations
from zoo.settings.axis import Examples
from zoo.sparsities import Sparsity, counted


class Chunked(Sparsity):
    """Token i sees j ≤ i of its own chunk, ⌊i/C⌋ = ⌊j/C⌋. Llama 4 (Meta 2025,
    https://github.com/meta-llama/llama-models), in three of four layers.

    Chunks count from the beginning of the text. The first token of a chunk sees only itself.
    """

    examples: ClassVar[Examples] = ({"chunk": 6},)
    kind: Literal["chunked"] = "chunked"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    chunk: PositiveInt = 64
    """C: tokens per chunk."""

    @property
    def reach(self) -> int:
        return self.chunk

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries.div(self.chunk, rounding_mode="floor") == keys.div(self.chunk, rounding_mode="floor")

    def pairs(self, context: int) -> int:
        whole, rest = divmod(context, self.chunk)
        return whole * counted(self.chunk, None) + counted(rest, None)

    def computed(self, context: int) -> int:
        size = min(self.chunk, context)
        return -(-context // size) * size**2

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Dense causal attention with each chunk as a row of the batch."""
        length, size = q.shape[2], min(self.chunk, q.shape[2])
        count = -(-length // size)
        q, k, v = (fold(F.pad(x, (0, 0, 0, count * size - length)).unflatten(2, (count, size))) for x in (q, k, v))
        index = torch.arange(size, device=q.device)
        return unfold(fused.attend(q, k, v, Visible(index, index), scoring), count)[:, :, :length]
