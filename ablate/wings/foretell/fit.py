"""Capacity of a memory: the largest batch at a context, and the largest context at a batch. Arithmetic on the declared
bytes of weights and cache; a share of the memory is left for everything else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from evals.costs.spec import NO_CACHE
from zoo.costs import BYTES, Cost, cost
from zoo.errors import SpecError
from zoo.lengths import longest_context
from zoo.spec import ModelSpec

ENDLESS = 2**40
"""A context that no device holds unless the cache stops growing."""


@dataclass(frozen=True)
class Fit:
    """Batches and contexts that fit beside the weights. `usable_bytes` is the memory for weights and cache."""

    parameters: int
    weight_bytes: int
    usable_bytes: float
    batches: dict[int, int | None]
    """Largest batch by context: 0 if not even one row fits, None if the model's positions end earlier."""
    batch: int
    largest_context: int | None
    """Largest context at `batch`: 0 if the weights do not fit, None if the cache does not limit it."""


def fit(
    spec: ModelSpec, memory_bytes: float, *, contexts: Sequence[int], batch: int = 1, dtype: str, share: float = 0.9
) -> Fit:
    """Largest batches and context, with weights and cache in `dtype`. share: share of the memory for both together.

    With an encoder, a context is that many tokens of the encoder and of the decoder. Raises SpecError for an
    encoder-only model.
    """
    if spec.visible == "all":
        raise SpecError("visible", NO_CACHE)
    costs, longest = cost(spec), longest_context(spec)
    weights, usable = costs.params * BYTES[dtype], share * memory_bytes
    readable = {context: longest is None or context <= longest for context in contexts}
    return Fit(
        parameters=costs.params,
        weight_bytes=weights,
        usable_bytes=usable,
        batches={c: largest_batch(costs, usable - weights, c, dtype) if readable[c] else None for c in contexts},
        batch=batch,
        largest_context=largest_context(costs, usable - weights, batch, dtype),
    )


def largest_batch(costs: Cost, free: float, context: int, dtype: str) -> int:
    """Number of rows whose caches fit into `free` bytes."""
    return max(0, int(free // costs.cache_bytes(1, context, dtype)))


def largest_context(costs: Cost, free: float, batch: int, dtype: str) -> int | None:
    """The largest context whose cache fits into `free` bytes; None if there is no limit."""
    longest = longest_context(costs.spec)

    def is_too_long(context: int) -> bool:
        return costs.cache_bytes(batch, context, dtype) > free

    if not is_too_long(longest or ENDLESS):
        return longest
    return bisect_left(range(1, longest or ENDLESS), True, key=is_too_long)  # longer contexts are too long, too
