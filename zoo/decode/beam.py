"""Beam search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.caching.cache import Cache
from zoo.decode.generate import cache_for, divided, next_logits
from zoo.decode.sampling import NEVER, Stop
from zoo.model import Decoder
from zoo.settings.axis import Spec
from zoo.settings.explain import checked
from zoo.site import Given


class Beams(NamedTuple):
    """The best continuations of each prompt, best first."""

    tokens: Tensor
    """(B, beams, N), with `Stop.fill` after a continuation's end."""
    scores: Tensor
    """(B, beams): Σ log p(token) / length^length_penalty."""


class BeamSearch(Spec):
    """Settings of beam search, as transformers defines them."""

    beams: PositiveInt = 4
    """Number of continuations kept per prompt at each step."""
    length_penalty: float = 1.0
    """Exponent of the length that Σ log p is divided by: above 0 favours long texts, 0 leaves sums unchanged."""
    early_stopping: bool | Literal["never"] = False
    """When a prompt with `beams` ended continuations is done: when its likeliest open one, scored at the current
    length, is below the worst ended one (false); when it is below even at its best-scoring length, the limit if the
    penalty is positive ("never"); at once (true)."""


@torch.no_grad()
def beam_search(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    left_pad: Tensor | None = None,
    stop: Stop = NEVER,
    cache: Cache | None = None,
    **settings: Any,
) -> Beams:
    """tokens: (B, T) prompts. Each step extends the `beams` likeliest open continuations; those among the `beams`
    likeliest candidates that end are kept by score.

    cache: an empty cache of B · beams rows, plain by default. settings: fields of `BeamSearch`, and further inputs of
    the prompts (`zoo.site.Given`).
    """
    given, settings = divided(settings)
    search = BeamState(checked(BeamSearch, settings), tokens.shape[0], new_tokens, stop, tokens.device)
    beams = search.how.beams
    first = None if left_pad is None else left_pad.repeat_interleave(beams)
    given = cast(Given, {name: cast(Tensor, told).repeat_interleave(beams, dim=0) for name, told in given.items()})
    feed = tokens.repeat_interleave(beams, dim=0)
    if cache is None:
        cache = cache_for(model, feed, new_tokens, given)
    while not search.done:
        logits = next_logits(model, feed, cache, first, **given)
        first, given = None, Given()
        cache.reorder(search.extend(logits.float().log_softmax(dim=-1)))
        feed = search.open[:, :, -1].flatten()[:, None]
    return Beams(search.ended, search.ended_scores)


@dataclass
class BeamState:
    """Open and ended continuations of `batch` prompts."""

    how: BeamSearch
    batch: int
    limit: int
    stop: Stop
    device: torch.device

    def __post_init__(self) -> None:
        shape, lowest = (self.batch, self.how.beams), float("-inf")
        self.open = torch.zeros(*shape, 0, dtype=torch.long, device=self.device)
        # All beams of a prompt start equal, so the first step extends only the first of them.
        self.open_scores = torch.full(shape, lowest, device=self.device)
        self.open_scores[:, 0] = 0.0
        self.ended = self.open.clone()
        self.ended_scores = torch.full(shape, lowest, device=self.device)
        self.improvable = torch.ones(self.batch, 1, dtype=torch.bool, device=self.device)
        self.done = self.limit < 1

    def extend(self, log_p: Tensor) -> Tensor:
        """log_p: (B · beams, V) → (B · beams,), the row that each open continuation extends."""
        vocabulary = log_p.shape[-1]
        total = self.open_scores[:, :, None] + log_p.view(self.batch, self.how.beams, vocabulary)
        # Enough candidates that `beams` stay open, however many end.
        wanted = self.how.beams * (1 + max(1, len(self.stop.sequences)))
        scores, places = total.flatten(1).topk(min(wanted, total.shape[1] * vocabulary))
        beam = places // vocabulary
        texts = torch.cat((_rows(self.open, beam), places[..., None] % vocabulary), dim=-1)  # (B, wanted, N)
        length = texts.shape[-1]
        ending = self.stop.ended(texts.flatten(0, 1)).view(scores.shape) | (length == self.limit)
        self._take_ended(texts, scores, ending)
        best, chosen = scores.masked_fill(ending, float("-inf")).topk(self.how.beams)
        self.open, self.open_scores = _rows(texts, chosen), best
        # Which prompts can still improve?
        at = self.limit if self.how.early_stopping == "never" and self.how.length_penalty > 0 else length
        worst = self.ended_scores.amin(dim=1, keepdim=True)
        self.improvable &= self.open_scores[:, :1] / at**self.how.length_penalty > worst
        full = bool(self.ended_scores.isfinite().all()) and self.how.early_stopping is True
        self.done = bool(ending.all()) or full or not bool(self.improvable.any())
        offset = torch.arange(self.batch, device=self.device)[:, None] * self.how.beams
        return (beam.gather(1, chosen) + offset).flatten()

    def _take_ended(self, texts: Tensor, scores: Tensor, ending: Tensor) -> None:
        """Move finished beams among the `beams` likeliest to the results where they improve on those already there."""
        full = self.ended_scores.isfinite().all(dim=1, keepdim=True)
        taken = ending & self.improvable & ~(full & (self.how.early_stopping is True))
        taken[:, self.how.beams :] = False
        scored = (scores / texts.shape[-1] ** self.how.length_penalty).masked_fill(~taken, float("-inf"))
        filled = torch.nn.functional.pad(self.ended, (0, texts.shape[-1] - self.ended.shape[-1]), value=self.stop.fill)
        self.ended_scores, kept = torch.cat((self.ended_scores, scored), dim=1).topk(self.how.beams)
        self.ended = _rows(torch.cat((filled, texts), dim=1), kept)


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """x: (B, n, T), rows: (B, m) → (B, m, T)."""
    return x.gather(1, rows[..., None].expand(*rows.shape, x.shape[-1]))
