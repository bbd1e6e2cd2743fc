"""Sampling of the next token from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.kernels.compiling import on_device
from zoo.settings.axis import Spec


class Sampling(Spec):
    """softmax of processed logits. The order is repetition penalty, temperature, top-k, top-p, min-p, as in
    transformers. The likeliest token is never cut."""

    temperature: NonNegativeFloat = 0.0
    """Divisor of the logits; 0 takes the likeliest token (greedy)."""
    top_k: PositiveInt | None = None
    """Keep only the k likeliest tokens, and ties with the last of them (Fan et al. 2018, arXiv:1805.04833)."""
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Keep only the smallest set of likeliest tokens with mass p (Holtzman et al. 2019, arXiv:1904.09751)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Keep only tokens at least p times as likely as the likeliest (Nguyen et al. 2024, arXiv:2407.01082)."""
    repetition_penalty: PositiveFloat = 1.0
    """θ: logits of tokens that occur in the text, prompt included, are divided by θ if positive and multiplied by θ if
    negative (CTRL, Keskar et al. 2019, arXiv:1909.05858)."""

    def choose(
        self, logits: Tensor, text: Tensor, left_pad: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """logits: (B, V), text: (B, T) so far → next token, (B, 1)."""
        if self.temperature == 0:
            return self._penalised(logits, text, left_pad).argmax(dim=-1, keepdim=True)
        return draw(self.probabilities(logits, text, left_pad), generator)

    def probabilities(self, logits: Tensor, text: Tensor, left_pad: Tensor | None = None) -> Tensor:
        """logits: (B, V), text: (B, T) so far → probabilities of the next token, (B, V), in float32 or more."""
        if self.temperature == 0:
            chosen = self.choose(logits, text, left_pad)
            kind = torch.promote_types(logits.dtype, torch.float32)
            return torch.zeros_like(logits, dtype=kind).scatter_(1, chosen, 1.0)
        return self.processed(logits, text, left_pad).softmax(dim=-1)

    def processed(self, logits: Tensor, text: Tensor, left_pad: Tensor | None = None) -> Tensor:
        """(B, V): processed logits, −∞ for tokens that cannot be drawn, in float32 or more. Needs a temperature above
        0."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = self._penalised(logits, text, left_pad) / self.temperature
        if self.top_k is not None:
            floor = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < floor, float("-inf"))
        if self.top_p < 1:
            ranked, order = logits.sort(dim=-1, descending=True, stable=True)
            weights = ranked.softmax(dim=-1)
            outside = weights.cumsum(dim=-1) - weights >= self.top_p
            outside[:, 0] = False
            logits = logits.masked_fill(outside.gather(1, order.argsort(dim=-1)), float("-inf"))
        if self.min_p > 0:
            weights = logits.softmax(dim=-1)
            floor = self.min_p * weights.amax(dim=-1, keepdim=True)
            logits = logits.masked_fill(weights < floor, float("-inf"))
        return logits

    def _penalised(self, logits: Tensor, text: Tensor, left_pad: Tensor | None) -> Tensor:
        if self.repetition_penalty == 1:
            return logits
        penalty, real = self.repetition_penalty, torch.ones_like(text)
        if left_pad is not None:
            real = (torch.arange(text.shape[1], device=text.device) >= left_pad[:, None]).long()
        counts = torch.zeros(logits.shape, dtype=torch.long, device=logits.device)
        occurring = counts.scatter_add_(1, text, real) > 0  # (B, V), in the row's text without padding
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        return torch.where(occurring, penalised, logits)


def draw(weights: Tensor, generator: torch.Generator | None) -> Tensor:
    """weights: (B, V), need not sum to one → (B, 1). Drawn on the generator's device: a generator on the CPU draws the
    same tokens for a model on any device."""
    where = weights.device if generator is None else generator.device
    return torch.multinomial(weights.to(where), 1, generator=generator).to(weights.device)


# Stop sequences, which end a continuation.


@dataclass(frozen=True)
class Stop:
    """A row ends with the first of these token sequences, which stays in the row; later tokens become `fill`. Raises
    ValueError for an empty sequence."""

    sequences: Sequence[Sequence[int]]
    fill: int = 0

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise ValueError("a stop sequence is empty: every row would end at once")

    def lengths(self, new: Tensor) -> Tensor:
        """new: (B, N) generated tokens → (B,): each row's length up to its end, N + 1 if no sequence has ended it."""
        ends = torch.full((new.shape[0],), new.shape[1] + 1, device=new.device)
        for sequence in self.sequences:
            size = len(sequence)
            if size > new.shape[1]:
                continue
            found = (new.unfold(1, size, 1) == on_device(sequence, new.device)).all(dim=-1)
            first = torch.where(found.any(dim=1), found.int().argmax(dim=1) + size, ends)
            ends = torch.minimum(ends, first)
        return ends

    def ended(self, new: Tensor) -> Tensor:
        """(B,): whether the row has ended."""
        return self.lengths(new) <= new.shape[1]

    def cut(self, new: Tensor) -> Tensor:
        """(B, N) → (B, n): cut at the longest row's end, with `fill` after the ends of other rows."""
        lengths = self.lengths(new).clamp(max=new.shape[1])
        new = new[:, : int(lengths.max())]
        after = torch.arange(new.shape[1], device=new.device) >= lengths[:, None]
        return new.masked_fill(after, self.fill)


NEVER = Stop(())
"""No stop sequences: every row continues to the limit."""
