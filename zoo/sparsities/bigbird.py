"""Block-sparse attention: window blocks, global blocks and random blocks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, OF_MODULES, OF_VALUES, Operations
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Supports
from zoo.sparsities._gathered import Gathered


class BigBird(Gathered):
    """A block of b tokens sees itself, the w − 1 blocks before it, the first g blocks and r random blocks in between.
    Zaheer et al. 2020, arXiv:2007.14062, causal.

    One random block is drawn from each of r equal parts of the blocks between the global ones and the window. The draw
    depends on `seed` and is the same for all texts, rows and heads. The paper has b = 64, w = r = 3 and g = 2.
    """

    examples: ClassVar[Examples] = ({"block": 2, "window_blocks": 2, "global_blocks": 1, "random_blocks": 2},)
    kind: Literal["bigbird"] = "bigbird"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    block: PositiveInt = 16
    """b: tokens per block."""
    window_blocks: PositiveInt = 3
    """w: number of blocks in the window, the block itself included."""
    global_blocks: NonNegativeInt = 2
    """g: number of first blocks, which all blocks see."""
    random_blocks: NonNegativeInt = 3
    """r: number of random blocks that a block sees besides window and global blocks."""
    seed: Annotated[NonNegativeInt, Supports(*EVERY_OPERATION)] = 0
    """Seed of the random blocks. Give `blocks` of the model different seeds to vary the draw between layers."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        query, key = queries // self.block, keys // self.block
        near = query - key < self.window_blocks
        first = (key >= 0) & (key < self.global_blocks)
        return near | first | (self._drawn(query) == key[..., None]).any(dim=-1)

    def _drawn(self, blocks: Tensor) -> Tensor:
        """Block indices (…,) → indices of their random blocks (…, r); −1 if there are fewer blocks to draw from."""
        between = (blocks - self.window_blocks - self.global_blocks + 1).clamp(min=0)[..., None]
        part = torch.arange(self.random_blocks, device=blocks.device)
        begin, end = (self.global_blocks + (part + i) * between // max(1, self.random_blocks) for i in (0, 1))
        draw = _scrambled((blocks[..., None] * self.random_blocks + part) * 2654435761 + self.seed)
        return torch.where(end > begin, begin + draw % (end - begin).clamp(min=1), -1)

    def pairs(self, context: int) -> int:
        whole, rest = divmod(context, self.block)
        before = sum(self._blocks_before(n) for n in range(whole)) * self.block**2
        before += self._blocks_before(whole) * self.block * rest
        return before + (whole * self.block * (self.block + 1) + rest * (rest + 1)) // 2

    def _blocks_before(self, number: int) -> int:
        """Number of blocks that block `number` sees besides itself."""
        return min(number, self.window_blocks - 1 + self.global_blocks + self.random_blocks)

    @property
    def queries_at_once(self) -> int:
        return self.block

    @property
    def keys_at_once(self) -> int:
        return (self.window_blocks + self.global_blocks + self.random_blocks) * self.block

    def keys_of(self, blocks: Tensor) -> Tensor:
        oldest = blocks - (self.window_blocks - 1)
        near = oldest + torch.arange(self.window_blocks, device=blocks.device)
        first = torch.arange(self.global_blocks, device=blocks.device).expand(len(blocks), -1)
        seen = torch.cat((near, first.masked_fill(first >= oldest, -1), self._drawn(blocks[:, 0])), dim=1)
        places = seen[..., None] * self.block + torch.arange(self.block, device=blocks.device)
        return places.flatten(1)


def _scrambled(x: Tensor) -> Tensor:
    """Hash of each int64 to a pseudo-random number below 2³²."""
    for _ in range(2):
        x = x & 0xFFFFFFFF
        x = ((x >> 16) ^ x) * 0x45D9F3B
    x = x & 0xFFFFFFFF
    return (x >> 16) ^ x
