"""Attention to a window and to every l-th token before it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attending.blocks import with_previous
from zoo.attending.visible import Scoring
from zoo.compatibility.traits import OF_MODULES, OF_VALUES, Operations
from zoo.kernels.precision import in_float32
from zoo.settings.axis import Examples
from zoo.sparsities import Sparsity, counted


class Strided(Sparsity):
    """Token i sees j ≤ i where i − j < l, or l divides i − j. Child et al. 2019 (Sparse Transformer), arXiv:1904.10509.

    The paper's strided pattern with both parts merged in every head. Its other form, parts that alternate over the
    layers, is a `pattern` of blocks with `window` and with `dilated`; GPT-3's alternates blocks with and without
    `window`. Work and memory grow as T (l + T/l), which is T√T for l near √T.
    """

    examples: ClassVar[Examples] = ({"stride": 4},)
    kind: Literal["strided"] = "strided"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    stride: PositiveInt = 32
    """l: window and stride in tokens, best near the square root of the context."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = queries - keys
        return (distance < self.stride) | (distance % self.stride == 0)

    def pairs(self, context: int) -> int:
        rows, rest = divmod(context, self.stride)
        return counted(context, self.stride) + self.stride * (rows * (rows - 1) // 2) + rest * rows

    def computed(self, context: int) -> int:
        rows = -(-context // self.stride)
        return rows * self.stride * (2 * self.stride + rows)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Lays the text out in rows of l tokens: the window spans a token's row and the row before it, the column the
        tokens at its place in all rows."""
        return in_float32(partial(self._attend, scoring=scoring), q, k, v).to(v.dtype)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        length, stride, heads = q.shape[2], self.stride, k.shape[1]
        rows = -(-length // stride)
        q, k, v = (F.pad(x, (0, 0, 0, rows * stride - length)).unflatten(2, (rows, stride)) for x in (q, k, v))
        q, k, v = q.unflatten(1, (heads, -1)), k[:, :, None], v[:, :, None]  # (B, K, H/K or 1, N, l, d)
        near = q @ with_previous(k).transpose(-1, -2)  # (B, K, H/K, N, l, 2l)
        column = q.transpose(-3, -2) @ k.transpose(-3, -2).transpose(-1, -2)  # (B, K, H/K, l, N, N)
        scores = torch.cat((near, column.transpose(-3, -2)), dim=-1) * scoring.scale
        weights = scores.masked_fill(~self._seen(rows, q.device), float("-inf")).softmax(dim=-1)
        near, column = F.dropout(weights, scoring.dropout).split((2 * stride, rows), dim=-1)
        mixed: Tensor = near @ with_previous(v) + (column.transpose(-3, -2) @ v.transpose(-3, -2)).transpose(-3, -2)
        return mixed.flatten(1, 2).flatten(2, 3)[:, :, :length]

    def _seen(self, rows: int, device: torch.device) -> Tensor:
        """Mask (N, l, 2l + N) for N rows: keys of the previous and the own row, then of the column in earlier rows."""
        place, row = torch.arange(self.stride, device=device), torch.arange(rows, device=device)
        keys = torch.arange(-self.stride, self.stride, device=device)
        distance = place[:, None] - keys
        near = (distance >= 0) & (distance < self.stride) & ((keys >= 0) | (row[:, None, None] > 0))
        column = (row < row[:, None])[:, None].expand(-1, self.stride, -1)
        return torch.cat((near, column), dim=-1)
