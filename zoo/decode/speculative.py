"""Speculative decoding: a cheap draft proposes several tokens, and the model checks them in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.caching.cache import Cache
from zoo.decode.generate import cache_for, divided, next_logits
from zoo.decode.sampling import NEVER, Sampling, Stop, draw
from zoo.errors import UnsupportedError
from zoo.model import Decoder
from zoo.settings.explain import checked
from zoo.site import Given

Distribution = Callable[[Tensor, Tensor], Tensor]
"""logits: (B, V), text: (B, T) that they follow → probabilities of the next token: (B, V)."""


class Speculation(Sampling):
    """Sampling settings, and the number of draft tokens."""

    ahead: PositiveInt = 4
    """Tokens that the draft proposes per verification by the model."""


class Speculated(NamedTuple):
    """Result of speculative decoding: the generated tokens, and the draft's acceptance counts."""

    tokens: Tensor
    """(B, N)."""
    passes: int
    """Forward passes of the model, including the prompt's but no re-reads after rollbacks; N without a draft."""
    drafted: int
    """Draft tokens proposed per row."""
    accepted: int
    """Draft tokens that every row accepted."""


class Drafter(Protocol):
    """Proposes draft tokens for the model to check."""

    def propose(self, text: Tensor, stream: Tensor, ahead: int, distribution: Distribution) -> tuple[Tensor, Tensor]:
        """text: (B, n), of which the model has read all but the last token; stream: (B, m, D), output of its last layer
        at the m tokens read for good since the last proposal → draft tokens, (B, γ), and the probabilities that they
        were drawn from, (B, γ, V), with γ ≤ ahead."""


@torch.no_grad()
def speculate(
    model: Decoder,
    draft: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    left_pad: Tensor | None = None,
    stop: Stop = NEVER,
    generator: torch.Generator | None = None,
    cache: Cache | None = None,
    **settings: Any,
) -> Speculated:
    """Output distributed as that of `generate` with these settings, in fewer forward passes of the model. Leviathan et
    al. 2022, arXiv:2211.17192.

    draft: a smaller model with the same vocabulary. It proposes `ahead` tokens x ~ q; the model reads them in one pass.
    Each is accepted with probability min(1, p(x)/q(x)). The first rejected one is replaced by a draw from
    max(0, p − q) / Σ max(0, p − q); if all are accepted, another token is drawn from p. So tokens are distributed as p.
    p and q are the probabilities that `settings`, fields of `Speculation`, make of the logits; greedy tokens equal
    those of `generate`. Rows of a batch advance together, as far as the row that accepts least. Both models get further
    inputs of the prompts (`zoo.site.Given`). Raises ValueError for two vocabulary sizes, UnsupportedError if only one
    model has an encoder.
    """
    if draft.spec.vocab_size != model.spec.vocab_size:
        sizes = f"{model.spec.vocab_size} tokens, not {draft.spec.vocab_size}"
        raise ValueError(f"the draft must have the model's vocabulary of {sizes}")
    if (draft.spec.encoder is None) != (model.spec.encoder is None):
        who = "the draft" if model.spec.encoder is None else "the model"
        raise UnsupportedError("encoder", f"only {who} has an encoder: either both models need one or neither")
    given, settings = divided(settings)
    proposer = ModelDraft(draft, cache_for(draft, tokens, new_tokens, given), left_pad, generator, given)
    writer = Writer(model, proposer, checked(Speculation, settings), stop, generator)
    return writer.write(tokens, new_tokens, left_pad, cache, given)


class Writer:
    """Alternates between drafting and checking."""

    def __init__(
        self, model: Decoder, draft: Drafter, how: Speculation, stop: Stop, generator: torch.Generator | None
    ) -> None:
        self.model, self.draft, self.how = model, draft, how
        self.stop, self.generator = stop, generator
        self.left_pad: Tensor | None = None

    def write(
        self, prompt: Tensor, new_tokens: int, left_pad: Tensor | None, cache: Cache | None, given: Given
    ) -> Speculated:
        """Continue prompt: (B, T)."""
        self.left_pad, start = left_pad, prompt.shape[1]
        if cache is None:
            cache = cache_for(self.model, prompt, new_tokens, given)
        if new_tokens < 1:
            return Speculated(prompt[:, :0], 0, 0, 0)
        stream = self.model.stream(prompt, cache, left_pad, **given)
        first = draw(self._distribution(self._logits(stream[:, -1:])[:, 0], prompt), self.generator)
        text, passes, drafted, accepted = torch.cat((prompt, first), dim=1), 1, 0, 0
        while (room := new_tokens - (text.shape[1] - start)) > 0 and not self.stop.ended(text[:, start:]).all():
            tokens, weights = text[:, :0], stream.new_zeros(text.shape[0], 0, self.model.spec.vocab_size)
            if room > 1:
                tokens, weights = self.draft.propose(text, stream, min(self.how.ahead, room - 1), self._distribution)
            added, stream = self._check(text, tokens, weights, cache, self.stop.ended(text[:, start:]))
            text = torch.cat((text, added), dim=1)
            passes, drafted, accepted = passes + 1, drafted + tokens.shape[1], accepted + added.shape[1] - 1
        return Speculated(self.stop.cut(text[:, start:]), passes, drafted, accepted)

    def _distribution(self, logits: Tensor, text: Tensor) -> Tensor:
        return self.how.probabilities(logits, text, self.left_pad)

    def _logits(self, stream: Tensor) -> Tensor:
        return self.model.read_out(self.model.norm(stream))

    def _check(
        self, text: Tensor, drafts: Tensor, weights: Tensor, cache: Cache, ended: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Read drafts, (B, γ) → tokens to add to the text, (B, a + 1), and the stream at the a + 1 tokens now read for
        good. a: number of drafts that every row accepts."""
        unread = torch.cat((text[:, -1:], drafts), dim=1)
        undo = cache.mark(unread.shape[1])
        stream = self.model.stream(unread, cache)
        whole, logits = torch.cat((text, drafts), dim=1), self._logits(stream)
        seen = [whole[:, : text.shape[1] + i] for i in range(unread.shape[1])]
        wanted = torch.stack([self._distribution(logits[:, i], before) for i, before in enumerate(seen)], dim=1)
        added = self._accept(drafts, weights, wanted, ended)
        again = undo(added.shape[1])
        if again:
            self.model.stream(unread[:, :again], cache)
        return added, stream[:, : added.shape[1]]

    def _accept(self, drafts: Tensor, q: Tensor, p: Tensor, ended: Tensor) -> Tensor:
        """drafts: (B, γ), drawn from q: (B, γ, V); p: (B, γ + 1, V) → (B, a + 1)."""
        count = drafts.shape[1]
        device = None if self.generator is None else self.generator.device
        chances = torch.rand(drafts.shape, generator=self.generator, device=device).to(p)
        proposed = drafts[..., None]
        good = chances * q.gather(2, proposed)[..., 0] < p[:, :count].gather(2, proposed)[..., 0]
        good |= ended[:, None]  # an ended row accepts all drafts, so as not to hold up the others
        accepted = good.long().cumprod(dim=1).sum(dim=1)  # (B,), drafts before the first rejection
        shared = int(accepted.min())
        if shared == count:
            return torch.cat((drafts, draw(p[:, shared], self.generator)), dim=1)
        left = (p[:, shared] - q[:, shared]).clamp(min=0)  # max(0, p − q): (B, V)
        left = torch.where(left.sum(dim=-1, keepdim=True) > 0, left, p[:, shared])  # rounding may make all of it zero
        last = torch.where((accepted > shared)[:, None], drafts[:, shared : shared + 1], draw(left, self.generator))
        return torch.cat((drafts[:, :shared], last), dim=1)


class ModelDraft:
    """A drafter that is a smaller model."""

    def __init__(
        self, model: Decoder, cache: Cache, left_pad: Tensor | None, generator: torch.Generator | None, given: Given
    ) -> None:
        self.model, self.cache, self.left_pad, self.generator = model, cache, left_pad, generator
        self.given = given
        self._drafted = torch.zeros(0)
        self._undo: Callable[[int], int] | None = None
        self._start = 0

    def propose(self, text: Tensor, stream: Tensor, ahead: int, distribution: Distribution) -> tuple[Tensor, Tensor]:
        if self._undo is not None:  # roll back the drafts that did not enter the text
            said = text[:, self._start : self.cache.length]
            agreeing = (said == self._drafted[:, : said.shape[1]]).all(dim=0).long().cumprod(dim=0).sum()
            if again := self._undo(int(agreeing)):
                self.model.hidden(text[:, self._start : self._start + again], self.cache)
        if not self.cache.length:  # further inputs are for the prompts' tokens
            self.model.stream(text[:, :-1], self.cache, self.left_pad, **self.given)
        drafts, weights = text[:, :0], []
        # The text is read for good: only drafts may be rolled back.
        logits = next_logits(self.model, text[:, self.cache.length :], self.cache)
        self._start, self._undo = self.cache.length, self.cache.mark(ahead)
        for i in range(ahead):
            if i:
                logits = next_logits(self.model, drafts[:, -1:], self.cache)
            weights.append(distribution(logits, torch.cat((text, drafts), dim=1)))
            drafts = torch.cat((drafts, draw(weights[-1], self.generator)), dim=1)
        self._drafted = drafts
        return drafts, torch.stack(weights, dim=1)
