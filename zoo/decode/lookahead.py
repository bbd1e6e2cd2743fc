"""Lookahead: speculative decoding in which the model's own modules of multi-token prediction draft."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from zoo.caching.cache import Cache
from zoo.decode.generate import divided
from zoo.decode.sampling import NEVER, Stop, draw
from zoo.decode.speculative import Distribution, Speculated, Speculation, Writer
from zoo.errors import UnsupportedError
from zoo.features.mtp import MtpModule, MtpModules
from zoo.model import Decoder
from zoo.settings.explain import checked


@torch.no_grad()
def lookahead(
    model: Decoder,
    tokens: Tensor,
    new_tokens: int,
    *,
    left_pad: Tensor | None = None,
    stop: Stop = NEVER,
    generator: torch.Generator | None = None,
    cache: Cache | None = None,
    **settings: Any,
) -> Speculated:
    """Output distributed as that of `generate` with these settings, in fewer forward passes of the model: module k of
    multi-token prediction drafts the token k positions after the next one (DeepSeek V3, arXiv:2412.19437 §2.2), and the
    model checks the drafts as in `speculate`. settings: as for `generate`. Raises UnsupportedError without `mtp`."""
    if model.spec.mtp is None:
        raise UnsupportedError("mtp", "lookahead needs a model with multi-token prediction: set mtp")
    given, sampling = divided(settings)
    draft = MtpDraft(model, tokens.shape[0], tokens.shape[1] + new_tokens, left_pad, generator)
    writer = Writer(model, draft, checked(Speculation, {**sampling, "ahead": model.spec.mtp.depth}), stop, generator)
    return writer.write(tokens, new_tokens, left_pad, cache, given)


class MtpDraft:
    """A drafter that is the model's modules of multi-token prediction, each with a cache.

    Entry i of module k is computed from h^{k−1}_i and emb(t_{i+k}), and predicts t_{i+k+1}. Its position is that of h;
    in training it is that of the token, a difference that relative position schemes do not see.
    """

    def __init__(
        self, model: Decoder, batch: int, capacity: int, left_pad: Tensor | None, generator: torch.Generator | None
    ) -> None:
        self.model, self.left_pad, self.generator = model, left_pad, generator
        kind, self.modules = model.embedding.weight.dtype, cast(MtpModules, model.mtp)
        self.caches = [cast(MtpModule, module).new_cache(batch, capacity, kind) for module in self.modules]
        self.starts = [0] * len(self.caches)
        """Entries that each module has read for good."""
        self.waiting: list[Tensor | None] = [None] * len(self.caches)
        """h^{k−1} from those entries on, (B, n, D), at tokens that the model has read for good."""

    def propose(self, text: Tensor, stream: Tensor, ahead: int, distribution: Distribution) -> tuple[Tensor, Tensor]:
        drafts, weights = text[:, :0], []
        before, after = self.modules.norms(self.model.norm)
        settled, drafted = before(stream), stream[:, :0]
        # Fewer than all modules draft only at the end of the text, where the others are not needed again.
        for k in range(1, ahead + 1):
            settled, drafted = self._read(k, torch.cat((text, drafts), dim=1), settled, drafted)
            last = torch.cat((settled, drafted), dim=1)[:, -1:]
            logits = self.model.read_out(after(last))[:, 0]
            weights.append(distribution(logits, torch.cat((text, drafts), dim=1)))
            drafts = torch.cat((drafts, draw(weights[-1], self.generator)), dim=1)
        return drafts, torch.stack(weights, dim=1)

    def _read(self, k: int, text: Tensor, settled: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor]:
        """settled, drafted: (B, n, D), h^{k−1} at tokens that the model has read for good, and at later ones, which
        depend on drafts → the same of h^k."""
        waiting = self.waiting[k - 1]
        settled = settled if waiting is None else torch.cat((waiting, settled), dim=1)
        # For k > 1 the last entry needs a token after the end of the text, so it waits for the next proposal.
        known = settled.shape[1] - min(settled.shape[1], int(k > 1))
        self.waiting[k - 1] = settled[:, known:]
        unsettled = torch.cat((settled[:, known:], drafted), dim=1)
        out = self._run(k, settled[:, :known], text)
        self.starts[k - 1] += known
        take_back = self.caches[k - 1].mark(unsettled.shape[1])
        ahead = self._run(k, unsettled, text)
        take_back(0)
        return out, ahead

    def _run(self, k: int, hidden: Tensor, text: Tensor) -> Tensor:
        """h^k: (B, n, D), from hidden, h^{k−1}, whose first entry is number `starts[k − 1]`."""
        start, count = self.starts[k - 1], hidden.shape[1]
        if not count:
            return hidden
        model, tokens = self.model, text[:, start + k : start + k + count]
        embedded = model.embed(tokens, model.step(tokens, start + k, self.left_pad, {}))
        own = model.step(tokens, start, self.left_pad, {})
        out: Tensor = self.modules[k - 1](hidden, embedded, own, self.caches[k - 1])
        return out
