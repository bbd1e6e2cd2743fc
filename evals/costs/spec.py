"""Settings for measuring a trained model's speed, memory and cache."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from zoo.caches import CacheKind
from zoo.caches.plain import Plain
from zoo.settings.axis import Choice, Spec

PROCESSES = 5
"""Number of processes, which run one after another; in each, all arms take turns."""
JUDGED, DRAWN = 4.0, 0.5
"""Multiples of a measurement's `seconds`, for each arm in all processes together: for training and the decoding point
that decide whether an arm is faster, and for the other points."""
START_SECONDS = 3.0
"""Time to start a process and build its models."""
PLAIN = Plain()
NO_CACHE = "an encoder has no KV cache"


class MeasureSpec(Spec):
    """Prefill and decode speed and cache bytes at every context × batch."""

    contexts: tuple[PositiveInt, ...] = Field(default=(64, 256), min_length=1, strict=False)
    """Numbers of tokens in the cache, or in the prompt for prefill, at which speeds are measured."""
    batches: tuple[PositiveInt, ...] = Field(default=(1, 8), min_length=1, strict=False)
    """Batch sizes at which speeds are measured, each with every context."""
    seconds: PositiveFloat = 0.3
    """Seconds for which each point of a run is measured, in three turns; slow points take longer, for one repeat in
    each turn. If arms are timed against each other, training and decoding at the longest context and the smallest batch
    get four times as long, and the other points half as long: more time narrows the intervals of the ratios."""
    caches: Annotated[
        tuple[Annotated[CacheKind, Choice("zoo.caches")], ...],
        Field(strict=False),
        # Without duplicates; plain first, as the reference for the others.
        AfterValidator(lambda kinds: tuple(dict.fromkeys((PLAIN, *kinds)))),
    ] = Field(default=(PLAIN,), exclude_if=lambda kinds: kinds == (PLAIN,))
    """Kinds of cache, such as `[int8, {kind: int4, group: 16}]`, each with its bytes, speed and loss on held-out text;
    a plain one is always measured."""

    def alternating_seconds(self, arms: int) -> float:
        """Minimum time to time `arms` arms against each other."""
        points = 2 * len(self.contexts) * len(self.batches)
        return PROCESSES * START_SECONDS + arms * self.seconds * (2 * JUDGED + DRAWN * (points - 1))
