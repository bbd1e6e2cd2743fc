"""Layout of a pass's tokens in chunks that are counted from the beginning of each row's text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.mixers._scan import ScanChunks
from zoo.site import ForwardPass


@dataclass(frozen=True)
class Layout:
    """Chunks of C slots for T new tokens, after the cached tokens of a partly filled chunk. R is B, or 1 if rows agree.

    place: (R, 1), index of the first new text token in its row's text; skipped: (R, 1), number of new padding tokens.
    Both are None if the pass begins the text without padding: tokens then fill the slots in order.
    """

    chunk: int
    tokens: int
    chunks: ScanChunks
    place: Tensor | None = None
    skipped: Tensor | None = None

    @staticmethod
    def of(step: ForwardPass, chunk: int, continued: bool) -> Layout:
        """Layout of a pass. continued: whether up to C − 1 tokens of its first chunk are cached."""
        tokens = step.index.shape[0]
        slots = tokens + (chunk - 1) * continued
        chunks = ScanChunks(slots, min(chunk, slots))
        if step.left_pad is None and not continued:
            return Layout(chunk, tokens, chunks)
        ahead = -step.start if step.left_pad is None else step.left_pad - step.start
        padding = torch.as_tensor(ahead, device=step.index.device).view(-1, 1)
        return Layout(chunk, tokens, chunks, (-padding).clamp(min=0), padding.clamp(0, tokens))

    @property
    def begins(self) -> Tensor:
        """(R, 1, 1): whether the first new token begins a chunk. Raises TypeError if `place` is None."""
        if self.place is None:
            raise TypeError("the pass begins the text")
        return (self.place % self.chunk == 0)[..., None]

    def cut(self, new: Tensor, kept: Tensor | None = None) -> Tensor:
        """new: (B, T, f), kept: (B, C, f), cached slots of the first chunk, None for zeros → (B, N, C, f), zeros in
        empty slots."""
        if self.place is None or self.skipped is None:
            return self.chunks.cut(new)
        slot, filled = torch.arange(self.chunks.length, device=new.device), self.place % self.chunk
        source = slot - filled + self.skipped
        there = (slot >= filled) & (source < self.tokens)
        laid = torch.take_along_dim(new, source.clamp(0, self.tokens - 1)[..., None], dim=1) * there[..., None]
        if kept is not None:
            before = F.pad(kept, (0, 0, 0, self.chunks.length - self.chunk))
            laid = torch.where((slot < filled)[..., None], before, laid)
        return self.chunks.cut(laid)

    def join(self, x: Tensor) -> Tensor:
        """(B, N, C, f) → (B, T, f); values at padding are meaningless."""
        laid = self.chunks.join(x)
        if self.place is None or self.skipped is None:
            return laid
        slot = torch.arange(self.tokens, device=x.device) + self.place % self.chunk - self.skipped
        return torch.take_along_dim(laid, slot.clamp(min=0)[..., None], dim=1)

    def before(self, like: Tensor) -> Tensor:
        """(R, N, 1, 1): number of text tokens in the chunks before each chunk."""
        number = torch.arange(self.chunks.count, device=like.device)
        if self.place is not None:
            number = number + self.place // self.chunk
        return (number * self.chunk).view(-1, self.chunks.count, 1, 1)

    def last(self, x: Tensor) -> Tensor:
        """(B, N, …) → (B, …): the chunk that holds each row's last token."""
        slot = torch.full((1, 1), self.tokens - 1, device=x.device)
        if self.place is not None and self.skipped is not None:
            slot = (slot + self.place % self.chunk - self.skipped).clamp(min=0)
        number = (slot // self.chunks.width).expand(x.shape[0], 1)
        return x[torch.arange(x.shape[0], device=x.device), number[:, 0]]
