"""Quality cost of a kind of cache: the loss of held-out text that is read through the cache.

Text is read in chunks, so that all chunks but the first attend to earlier tokens as the cache stores them. Nothing is
sampled: every kind reads the same tokens. Standard errors are over windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evals.reading.batches import Batches
from evals.reading.mode import evaluating
from evals.reading.windows import (
    Floats,
    Reader,
    Reason,
    Text,
    mean,
    means,
    stderr,
    stretches,
    target_nats,
    unless_out_of_memory,
)
from store.documents import CacheLoss, LossThroughCache, MeanNats
from zoo.caches import CacheKind
from zoo.caches.paged import OutOfPagesError
from zoo.errors import SpecError
from zoo.model import Decoder

CHUNK = 64
TOKENS = 16_384


def loss_by_cache(model: Decoder, text: Text, kinds: Sequence[CacheKind], length: int) -> CacheLoss:
    """Mean loss in nats per token through each kind of cache, in windows of `length` tokens, and for all but the first
    kind its increase over the first.

    A kind that the model does not support has a reason instead; so has a length that does not fit the model or text.
    """
    reader = Reader.of(model, text, length, "auto")
    if reason := reader.reason(length):
        return CacheLoss(length=length, reason=reason)
    starts = stretches(len(text.tokens), [length], TOKENS, seed=0).starts
    windows = torch.from_numpy(text.windows(starts, length))
    rows = Batches("auto", model.spec.vocab_size).rows(length)
    with evaluating(model):
        found = {kind.label: _through(model, windows, kind, rows, length) for kind in kinds}
    first, losses = found[kinds[0].label], {}
    for name, value in found.items():
        if isinstance(value, str):
            losses[name] = LossThroughCache(reason=value)
        else:
            added = None if value is first or isinstance(first, str) else _mean(value - first)
            losses[name] = LossThroughCache(nats_per_token=_mean(value), added=added)
    return CacheLoss(length=length, windows=len(starts), kinds=losses)


def _mean(nats: Floats) -> MeanNats:
    return MeanNats(value=mean(means(nats)), stderr=stderr(means(nats)))


def _through(model: Decoder, windows: Tensor, kind: CacheKind, rows: int, length: int) -> Floats | Reason:
    """Nats of all targets, (windows, length), or the reason why there are none."""
    parts = windows.split(rows)
    try:
        return unless_out_of_memory(lambda: np.concatenate([_nats(model, part, kind, length) for part in parts]))
    except (SpecError, OutOfPagesError) as error:
        return str(error)


def _nats(model: Decoder, windows: Tensor, kind: CacheKind, length: int) -> Floats:
    """windows: (B, R + 1) → nats of the last `length` tokens of each: (B, length)."""
    windows = windows.to(model.device)
    tokens = windows[:, :-1]
    cache = model.new_cache(len(tokens), tokens.shape[1], kind=kind)
    hidden = torch.cat([model.hidden(chunk, cache) for chunk in tokens.split(CHUNK, dim=1)], dim=1)
    return target_nats(model, hidden[:, -length:], windows[:, -length:])
