"""Attention-sink cache: the first tokens and the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from zoo.caches import CacheKind
from zoo.caching.cache import TakeBack, TokenCache
from zoo.errors import UnsupportedError

if TYPE_CHECKING:
    from zoo.mixers import MixerLayer
    from zoo.spec import ModelSpec


class Sink(CacheKind):
    """The first `sinks` tokens and the last `recent` ones, the query's own token included. Xiao et al. 2023
    (StreamingLLM), arXiv:2309.17453.

    Tokens in between are evicted, and positions are those within the cache: the sinks are moved to right before the
    oldest recent token. The number of tokens is unlimited. Up to sinks + recent tokens the cache equals a plain one;
    beyond that, tokens are read one at a time. Layers with a window keep their plain rolling buffer. Rows cannot be
    padded, and absolute positions, which are added to the embedded tokens, are refused, since they cannot be moved.
    """

    kind: Literal["sink"] = "sink"
    sinks: NonNegativeInt = 4
    """Number of first tokens of a text, which are never evicted."""
    recent: PositiveInt = 1020
    """Number of last tokens that are kept, including the query's own."""

    def check(self, model: ModelSpec) -> None:
        super().check(model)
        added = [scheme.kind for scheme, _ in model.positions if scheme.absolute]
        if added:
            reason = f"sink cannot shift {added[0]} positions, which are added to the embedded tokens"
            raise UnsupportedError("cache", reason)

    def store_tokens(self, tokens: TokenCache, mixer: MixerLayer) -> TokenCache:
        if tokens.capacity is None or tokens.slots < self.sinks + self.recent:
            return tokens
        mixer.moved([buffer[:, :, :0] for buffer in tokens.buffers], 0)  # raises if the mixer cannot move keys
        return SinkCache(tokens, self.sinks, self.recent, mixer)

    def token_bytes(self, shapes: Sequence[tuple[int, int]], slots: int, rolling: bool, size: int) -> int:
        kept = slots if rolling else min(slots, self.sinks + self.recent)
        return size * kept * sum(heads * features for heads, features in shapes)


class SinkCache(TokenCache):
    """Token t lies in slot t while there is room; later tokens overwrite the oldest one that is not a sink."""

    def __init__(self, plain: TokenCache, sinks: int, recent: int, mixer: MixerLayer) -> None:
        shapes = [(*buffer.shape[:2], sinks + recent, buffer.shape[3]) for buffer in plain.buffers]
        buffers = [old.new_zeros(shape) for old, shape in zip(plain.buffers, shapes, strict=True)]
        super().__init__(*buffers, rolling=True)
        self.sinks, self.recent, self._moved = sinks, recent, mixer.moved

    def pad(self, left_pad: Tensor) -> None:
        raise ValueError("a sink cache keeps the first tokens of every row, which would be padding: do not pad prompts")

    def readable(self, tokens: int) -> int:
        return max(1, min(tokens, self.slots - self.length))

    def _keep(self, new: Sequence[Tensor], index: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        start, end = self.length, self.length + index.shape[0]
        if end <= self.slots:
            return super()._keep(new, index)
        if index.shape[0] > 1:
            raise ValueError("a full sink cache reads one token at a time")
        self.length = end
        slot = self.sinks + (start - self.sinks) % self.recent
        for buffer, token in zip(self.buffers, new, strict=True):
            buffer[:, :, slot : slot + 1] = token.detach()
        gone = end - self.slots
        sinks = self._moved(
            [buffer[:, :, : self.sinks].to(x.dtype) for buffer, x in zip(self.buffers, new, strict=True)], gone
        )
        recent = [buffer[:, :, self.sinks :].to(x.dtype) for buffer, x in zip(self.buffers, new, strict=True)]
        kept = [torch.cat(pair, dim=2) for pair in zip(sinks, recent, strict=True)]
        place = torch.arange(self.recent, device=index.device)
        latest = end - 1 - (end - 1 - self.sinks - place) % self.recent  # index of the token in each recent slot
        return kept, torch.cat((torch.arange(self.sinks, device=index.device) + gone, latest))

    def divides(self, tokens: int) -> bool:
        return self.length + tokens <= self.slots

    def mark(self, tokens: int) -> TakeBack:
        start, kept_whole = self.length, self.divides(tokens)
        saved = [] if kept_whole else [buffer.clone() for buffer in self.buffers]

        def take_back(kept: int) -> None:
            self.length = start + kept
            self.buffers = saved or self.buffers

        return take_back
