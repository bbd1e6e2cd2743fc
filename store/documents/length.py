"""Test of whether a run trains long enough for its loss to reflect the architecture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

TOKENS_PER_PARAMETER = 5
"""Least tokens per parameter; about 20 are compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556)."""
STEPS = 500
LIMITS = f"{TOKENS_PER_PARAMETER} tokens per parameter or {STEPS} steps"


class Length(NamedTuple):
    """Length of a model's training, including that of the arm that it started from."""

    tokens: float
    steps: float
    parameters: int
    """Parameters without the tables of tokens and positions, and without the head, tied to them or not."""
    after_checkpoint: bool = False
    """Whether it started from a checkpoint, whose training is not counted."""

    @classmethod
    def of(cls, tokens: int, steps: int, tokens_before: int, parameters: int, after_checkpoint: bool = False) -> Self:
        """tokens_before: those of the arm that it starts from, counted in steps of this arm's size."""
        whole = tokens_before + tokens
        return cls(whole, steps * whole / tokens, parameters, after_checkpoint)

    @property
    def tokens_per_parameter(self) -> float:
        return self.tokens / max(self.parameters, 1)

    @property
    def undertrained(self) -> bool:
        return self.wanting > 1

    @property
    def shortfall(self) -> str:
        """`3.2 of 5 tokens per parameter and 212 of 500 steps`: what it lacks to train for long enough."""
        if self.after_checkpoint:
            return ""
        few = self.tokens_per_parameter < TOKENS_PER_PARAMETER
        return " and ".join(
            [f"{self.tokens_per_parameter:.2g} of {TOKENS_PER_PARAMETER} tokens per parameter"] * few
            + [f"{self.steps:,.0f} of {STEPS} steps"] * (self.steps < STEPS)
        )

    @property
    def wanting(self) -> float:
        """Least factor by which its training should be longer; at most 1 if it trains long enough."""
        if self.after_checkpoint:
            return 0.0
        return max(TOKENS_PER_PARAMETER / self.tokens_per_parameter, STEPS / self.steps)


def wanting(lengths: Iterable[Length]) -> float:
    """Least factor, rounded up to tenths, by which all should be longer for none to be undertrained."""
    return math.ceil(10 * max(length.wanting for length in lengths)) / 10


def undertrained(lengths: Mapping[str, Length]) -> str | None:
    """A sentence that names the arms that train too briefly and what the worst of them lacks; None if every arm trains
    long enough."""
    short = {name: length for name, length in lengths.items() if length.undertrained}
    if not short:
        return None
    who = "all arms" if len(short) == len(lengths) else ", ".join(short)
    worst = max(short.values(), key=lambda length: length.wanting).shortfall
    least = "" if len(short) == 1 else "as few as "
    return f"Undertrained: {who}, with {least}{worst}; these losses reflect early training."
