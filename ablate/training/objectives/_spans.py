"""Shared code of objectives that drop spans of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.training.objectives import Objective
from zoo.costs import Cost


class Spans(Objective):
    """Drops a share `rate` of a window's tokens, in spans of `span` tokens on average.

    All windows have the same number of spans, so that nothing is padded; all ways to cut them are equally likely.
    """

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of a window's tokens that are dropped."""
    span: Annotated[float, Field(ge=1)] = 3.0
    """Mean length of a dropped span, in tokens."""

    def sizes(self, context: int) -> tuple[int, int]:
        """(dropped tokens, spans) of a window of `context` tokens."""
        dropped = min(max(1, round(self.rate * context)), context - 1)
        return dropped, min(max(1, round(dropped / self.span)), dropped, context - dropped)

    def dropped(self, length: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(T,): mask of the dropped tokens, in alternating kept and dropped stretches, a kept one first."""
        count, spans = self.sizes(length)
        lengths = np.stack((_parts(length - count, spans, rng), _parts(count, spans, rng)), axis=1).ravel()
        return np.repeat(np.tile([False, True], spans), lengths)


def _parts(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(count,): positive sizes of parts that add up to `total`, all ways equally likely."""
    cuts = np.sort(rng.choice(np.arange(1, total), count - 1, replace=False))
    return np.diff(np.concatenate(([0], cuts, [total])))


def merged(places: NDArray[np.int64], gaps: NDArray[np.bool_], end: bool = False) -> NDArray[np.int64]:
    """Positions of tokens, with one −1 for each stretch of `gaps`. end: append one more −1."""
    first = gaps & ~np.concatenate(([False], gaps[:-1]))
    kept = places[~gaps | first]
    return np.append(kept, -1) if end else kept


def per_token(found: Cost, tokens: int, context: int) -> Cost:
    """Costs per token of a pass over `tokens` tokens, converted to costs per token of the `context` tokens of text."""
    share = tokens / context
    return replace(
        found,
        context=context,
        flops_per_token_forward=share * found.flops_per_token_forward,
        flops_per_token=share * found.flops_per_token,
        flops_per_token_square=share * found.flops_per_token_square,
        flops_per_token_executed=share * found.flops_per_token_executed,
    )
