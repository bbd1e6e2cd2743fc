"""Common code of mixers whose queries attend to some blocks of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.attend import attend
from zoo.attending.scoring import Scoring
from zoo.attending.visible import Visible
from zoo.errors import SpecError
from zoo.mixers import Mixer
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, number
from zoo.settings.field_tags import Dropout, Fact, HeadFeatures, Heads


class BlockHeads(Mixer):
    """Heads of queries, keys and values, for queries that choose blocks of keys."""

    scored: ClassVar[str]
    """What queries score, which is at no place."""

    heads: Heads = 4
    """H: number of query heads; a head has d_model / heads features unless `head_dim` is set."""
    kv_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS] = None
    """Heads of keys and values; null for as many as `heads`."""
    head_dim: HeadFeatures | None = None
    """Features per head; null for d_model / heads."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE()
    """Position encoding of queries and keys; it cannot add to scores."""
    dropout: Dropout = 0.0
    """Dropout on attention weights, in training."""

    def resolve(self, d_model: int) -> Self:
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            raise SpecError("kv_heads", f"{kv_heads} kv heads do not divide {self.heads} heads")
        if self.head_dim is None and d_model % self.heads:
            reason = f"{self.heads} heads do not divide d_model {d_model}; set head_dim to choose it freely"
            raise SpecError("heads", reason)
        head_dim = self.head_dim or d_model // self.heads
        self._check_position(head_dim)
        return self.model_copy(update={"kv_heads": kv_heads, "head_dim": head_dim})

    def _check_position(self, head_dim: int) -> None:
        if self.position.adds_to_scores:
            reason = f"{self.kind} scores {self.scored}, which are at no place for which {self.position.kind} could add"
            raise SpecError("position", reason)
        try:
            self.position.check(head_dim)
        except SpecError as error:
            raise error.under("position") from None

    def sizes(self) -> tuple[int, int, int]:
        """H, K, d of a resolved spec."""
        return self.heads, number(self.kv_heads), number(self.head_dim)


def attend_to_blocks(
    q: Tensor,
    kept: tuple[Tensor, Tensor],
    blocks: Tensor,
    of_key: Tensor,
    read: int,
    visible: Visible,
    scoring: Scoring,
) -> Tensor:
    """Attention to the keys of chosen blocks: (B, H, T, d).

    q: (B, H, T, d), kept: keys and values (B, K, S, d). blocks: (B, G, T, N), whether a query's head, or group of
    heads, chose a block. of_key: (B or 1, S), the block of each key, negative on padding. read: number of keys that the
    last token of the text sees.
    """
    (k, v), of_key = kept, of_key[:, None, None]
    # Padding sees padding, so that no row of scores is empty.
    mask = blocks.take_along_dim(of_key.clamp(0, blocks.shape[-1] - 1), dim=-1) | (of_key < 0)  # (B, G, T, S)
    if visible.everything:
        # A single query of unpadded text: keys that are not chosen need not be read at all.
        k, v = (x.repeat_interleave(mask.shape[1] // x.shape[1], dim=1) for x in (k, v))
        order = mask.int().argsort(dim=-1, descending=True, stable=True)[..., :read].transpose(-1, -2)
        some = Visible(visible.queries, visible.queries.expand(read))
        return attend(q, k.take_along_dim(order, 2), v.take_along_dim(order, 2), some, scoring)
    mask = mask.repeat_interleave(q.shape[1] // mask.shape[1], dim=1)
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return attend(q, k, v, visible, replace(scoring, bias=bias))


def count_of_chosen(tokens: int, block: int, blocks: int) -> int:
    """Number of tokens in the chosen blocks that the last of `tokens` tokens attends to, its own block among them."""
    own = (tokens - 1) % block + 1
    return min(tokens, (blocks - 1) * block + own)


def sum_of_chosen(tokens: int, block: int, blocks: int) -> int:
    """Σ_t `count_of_chosen(t)` over t = 1 … tokens."""
    all_of_them = min(tokens, blocks * block)
    full, rest = divmod(tokens - all_of_them, block)
    own = full * block * (block + 1) // 2 + rest * (rest + 1) // 2
    return all_of_them * (all_of_them + 1) // 2 + (tokens - all_of_them) * (blocks - 1) * block + own
