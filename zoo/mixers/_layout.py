"""Layout of a pass's tokens in chunks that are counted from where each row's own text begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.mixers._scan import ScanChunks
from zoo.site import ForwardPass


@dataclass(frozen=True)
class Layout:
    """Chunks of C slots for T new tokens behind those of a chunk that is not full. R is B, or 1 where rows agree.

    place: (R, 1), of the first new token that is text, in its row's own text; skipped: (R, 1), new tokens that are
    padding. Both None where the pass begins the text and nothing is padded: tokens then lie as they come.
    """

    chunk: int
    tokens: int
    chunks: ScanChunks
    place: Tensor | None = None
    skipped: Tensor | None = None

    @staticmethod
    def of(step: ForwardPass, chunk: int, continued: bool) -> Layout:
        """continued: whether up to C − 1 tokens of the first chunk were kept."""
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
        """(R, 1, 1): whether the first new token begins a chunk, of a pass that goes on."""
        if self.place is None:
            raise TypeError("the pass begins the text")
        return (self.place % self.chunk == 0)[..., None]

    def cut(self, new: Tensor, kept: Tensor | None = None) -> Tensor:
        """new: (B, T, f), kept: (B, C, f) or None for zeros → (B, N, C, f), zeros where there is no token."""
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
        """(B, N, C, f) → (B, T, f); what padding gets has no meaning."""
        laid = self.chunks.join(x)
        if self.place is None or self.skipped is None:
            return laid
        slot = torch.arange(self.tokens, device=x.device) + self.place % self.chunk - self.skipped
        return torch.take_along_dim(laid, slot.clamp(min=0)[..., None], dim=1)

    def before(self, like: Tensor) -> Tensor:
        """(R, N, 1, 1): tokens of the text in the chunks before each."""
        number = torch.arange(self.chunks.count, device=like.device)
        if self.place is not None:
            number = number + self.place // self.chunk
        return (number * self.chunk).view(-1, self.chunks.count, 1, 1)

    def last(self, x: Tensor) -> Tensor:
        """(B, N, …) → (B, …): the chunk of each row's last token."""
        slot = torch.full((1, 1), self.tokens - 1, device=x.device)
        if self.place is not None and self.skipped is not None:
            slot = (slot + self.place % self.chunk - self.skipped).clamp(min=0)
        number = (slot // self.chunks.width).expand(x.shape[0], 1)
        return x[torch.arange(x.shape[0], device=x.device), number[:, 0]]
