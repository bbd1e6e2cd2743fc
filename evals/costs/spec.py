"""Settings for measuring a trained model's speed, memory and cache."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from zoo.caches import CacheKind
from zoo.caches.plain import Plain
from zoo.settings.axis import Choice, Spec

PROCESSES = 5
"""Processes in which all arms take turns, one after another."""
JUDGED, DRAWN = 4.0, 0.5
"""Times the `seconds` of a measurement: for training and the point of decoding that arms are judged by, and for the
other points, of each arm in all processes together."""
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
    each turn. Where arms are timed against each other, training and decoding at the longest context and the smallest
    batch have four times as long, and the other points half of it: more narrows the intervals of their ratios."""
    caches: Annotated[
        tuple[Annotated[CacheKind, Choice("zoo.caches")], ...],
        Field(strict=False),
        # Each once; plain first, which the others are compared with.
        AfterValidator(lambda kinds: tuple(dict.fromkeys((PLAIN, *kinds)))),
    ] = Field(default=(PLAIN,), exclude_if=lambda kinds: kinds == (PLAIN,))
    """Kinds of cache, such as `[int8, {kind: int4, group: 16}]`, each with its bytes, speed and loss on held-out text;
    a plain one is always measured."""

    def alternating_seconds(self, arms: int) -> float:
        """Least time of timing so many arms against each other."""
        points = 2 * len(self.contexts) * len(self.batches)
        return PROCESSES * START_SECONDS + arms * self.seconds * (2 * JUDGED + DRAWN * (points - 1))
