"""Prefill and decoding speed of a model, and the memory of its cache."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from evals.costs.memory import keep_freed_memory
from evals.costs.peaks import copy_bytes_per_second
from evals.costs.point import Phase, Point, Turn, Turns
from evals.costs.spec import MeasureSpec
from evals.found import counted, counting
from evals.reading.passes import Batches, evaluating, obstacle
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
from store.documents import CacheLoss, LossThroughCache, MeanNats, Measured, MeasureDocument
from zoo.caches import CacheKind
from zoo.caches.paged import OutOfPagesError
from zoo.errors import SpecError
from zoo.model import Decoder

# Quality cost of a kind of cache: the loss of held-out text that is read through the cache.
#
# Text is read in chunks, so that all chunks but the first attend to earlier tokens as the cache stores them. Nothing is
# sampled: every kind reads the same tokens. Standard errors are over windows.

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


_TURNS = 3
"""Number of turns into which each point's time is divided."""


def measure(model: Decoder, spec: MeasureSpec, text: Text | None = None) -> MeasureDocument:
    """Cache bytes, and speed and memory of prefill and decoding, at each context × batch, with a plain cache and with
    each other requested kind.

    The model is measured on its device and in its type. Tokens per second count all rows of the batch; seconds are the
    waiting time of each row. A point that does not fit in memory, or with a kind of cache that the model does not
    support, has a `reason` instead of numbers. text: held-out text for the loss through each kind of cache.

    An encoder only reads, up to the hidden state of every token: it has no cache. With an encoder beside the decoder, a
    context is tokens that the encoder has read and, in a full cache, as many that the decoder has read: bytes are of
    both. The first token then takes the encoder's pass, the keys and values of its output, and a pass over one token of
    the decoder. For a prefix LM, the context is the prefix.
    """
    keep_freed_memory()
    bandwidth = copy_bytes_per_second(model.device)
    largest = max(spec.contexts)
    with evaluating(model):
        plain, *others = _points(model, spec, bandwidth)
        compared = others and text is not None and obstacle(model.spec) is None
        return MeasureDocument(
            cache=plain.cache,
            prefill=plain.prefill,
            decode=plain.decode,
            request=spec.model_dump(mode="json"),
            kv_bytes_per_token=Point(model, largest, 1, spec.seconds).declared_bytes / largest or None,
            kv_context=largest,
            bandwidth_bytes_per_second=bandwidth,
            caches={kind.label: found for kind, found in zip(spec.caches[1:], others, strict=True)},
            cache_loss=loss_by_cache(model, text, spec.caches, largest) if compared and text else None,
        )


def _points(model: Decoder, spec: MeasureSpec, bandwidth: float) -> list[Measured]:
    """All measurements with each kind of cache."""
    places = [(context, batch) for context in sorted(spec.contexts) for batch in sorted(spec.batches)]
    points = [
        Point(model, *place, spec.seconds, bandwidth=bandwidth, kind=kind, turns=_TURNS)
        for place in places
        for kind in spec.caches
    ]
    with counting("reading prompts"):
        reads = _by_turns(points, "prefill")
    with counting("decoding"):
        writes = _by_turns(points, "decode")
    found = [*zip(points, reads, writes, strict=True)]
    of_kinds = [found[number :: len(spec.caches)] for number in range(len(spec.caches))]
    return [
        Measured(
            cache=tuple(point.cache() for point, _, _ in of_kind),
            prefill=tuple(point.prefilled(read) for point, read, _ in of_kind),
            decode=tuple(point.decoded(written) for point, _, written in of_kind),
        )
        for of_kind in of_kinds
    ]


def _by_turns(points: list[Point], phase: Phase) -> list[Turns]:
    """Turns of each point, or the reason why there are none. The points alternate, so that other load on the machine
    affects all of them alike, and only a few turns of each. No two points are in memory at once."""
    turns: list[list[Turn]] = [[] for _ in points]
    refused: dict[int, Reason] = {}
    for number, (place, point) in counted([*product(range(points[0].turns), enumerate(points))]):
        if place not in refused:
            found = point.turn(phase, number)
            if isinstance(found, str):
                refused[place] = found
            else:
                turns[place].append(found)
    return [refused.get(place) or turns[place] for place in range(len(points))]
