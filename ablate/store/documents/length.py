"""Whether a run trains long enough for its loss to say something of the architecture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

TOKENS_PER_PARAMETER = 5
"""Non-embedding parameters; the compute-optimal neighbourhood is 20 (Hoffmann et al. 2022, arXiv:2203.15556)."""
STEPS = 500
LIMITS = f"{TOKENS_PER_PARAMETER} tokens per non-embedding parameter or {STEPS} steps"


class Length(NamedTuple):
    """Length of a model's training, that of what it started from included."""

    tokens: float
    steps: float
    parameters: int
    """Without the tables of tokens and positions."""
    after_checkpoint: bool = False
    """Whether it started from a checkpoint, whose training is not counted."""

    @classmethod
    def of(cls, tokens: int, steps: int, tokens_before: int, parameters: int, after_checkpoint: bool = False) -> Self:
        """tokens_before: of the arm that it starts from, in steps as large."""
        whole = tokens_before + tokens
        return cls(whole, steps * whole / tokens, parameters, after_checkpoint)

    @property
    def tokens_per_parameter(self) -> float:
        return self.tokens / max(self.parameters, 1)

    @property
    def undertrained(self) -> bool:
        return self.wanting > 1

    @property
    def wanting(self) -> float:
        """Least factor by which its training should be longer; at most 1 where it trains long enough."""
        if self.after_checkpoint:
            return 0.0
        return max(TOKENS_PER_PARAMETER / self.tokens_per_parameter, STEPS / self.steps)


def wanting(lengths: Iterable[Length]) -> float:
    """Least factor, in tenths, by which all should be longer for none to be undertrained."""
    return math.ceil(10 * max(length.wanting for length in lengths)) / 10


def undertrained(lengths: Mapping[str, Length]) -> str | None:
    """A sentence that names the arms that train too briefly; None if every arm trains long enough."""
    names = [name for name, length in lengths.items() if length.undertrained]
    who = "all arms" if len(names) == len(lengths) else ", ".join(names)
    return f"Undertrained (fewer than {LIMITS}): {who}; these losses reflect early training." if names else None
