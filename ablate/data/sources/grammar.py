"""Synthetic task: a language with known entropy."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, next_tokens

START = 1
Floats = NDArray[np.float64]


class GrammarSource(SyntheticSource):
    """Sentences of a random probabilistic regular grammar S → x S', whose lowest possible loss is known exactly.

    As a source for transformers: Shai et al. 2024, arXiv:2405.15943; the entropy: Crutchfield & Young 1989, PRL 63:105.

    In each state, `branching` of the symbols may come next, with probabilities drawn from a flat Dirichlet
    distribution; each symbol leads to one next state. Every sentence starts in the same state, so a model that knows
    the grammar always knows the state: the lowest possible expected loss at a token is the entropy
    H(state) = −Σₓ p(x | state) ln p(x | state). A symbol may occur in several states, so symbols alone do not reveal
    the state. The report shows the loss above this floor. Its floor is that of the actual held-out sentences, −ln p of
    each token, whose expectation is the entropy.
    """

    source: Literal["grammar"] = "grammar"
    length: Graded = (64,)
    """Symbols of a sentence; all are targets."""
    states: Annotated[int, Field(ge=2)] = 16
    """Number of hidden states of the grammar."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols, at least `branching`."""
    branching: PositiveInt = 3
    """Number of symbols that may come next in each state."""
    grammar_seed: NonNegativeInt = 0
    """Seed of the grammar, independent of the run's seed: all seeds of a study learn one language."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.branching > self.symbols:
            raise ValueError(f"branching ({self.branching}) must not exceed symbols ({self.symbols})")
        return self

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    @property
    def rules(self) -> Rules:
        return rules(self.states, self.symbols, self.branching, self.grammar_seed)

    def tokens_of(self, level: Level) -> int:
        return level["length"]

    def chance(self, level: Level) -> None:
        """None: a language has no answers to guess."""

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        known, uniform = self.rules, draw.random(level["length"])
        steps = known.chances.cumsum(axis=1)
        sequence, state = [START], 0
        for u in uniform:
            branch = min(int(np.searchsorted(steps[state], u, side="right")), self.branching - 1)
            sequence.append(2 + int(known.symbols[state, branch]))
            state = int(known.following[state, branch])
        return next_tokens(np.array(sequence), range(1, len(sequence)))

    def floor(self, level: Level, example: Example) -> Floats:
        known, state = self.rules, 0
        paid = np.empty(len(example.targets))
        for place, symbol in enumerate(example.targets - 2):
            branch = int(np.flatnonzero(known.symbols[state] == symbol)[0])
            paid[place] = -np.log(known.chances[state, branch])
            state = int(known.following[state, branch])
        return paid


class Rules(NamedTuple):
    """(states, branching) each: the symbols that may come next, their probabilities, and the next states."""

    symbols: NDArray[np.int64]
    chances: Floats
    following: NDArray[np.int64]


@lru_cache
def rules(states: int, symbols: int, branching: int, seed: int) -> Rules:
    """The grammar of a seed. The first branch of state s leads to s + 1 (mod states), so that all are reachable."""
    draw = np.random.default_rng(seed)
    following = draw.integers(states, size=(states, branching))
    following[:, 0] = np.roll(np.arange(states), -1)
    return Rules(
        symbols=np.array([draw.choice(symbols, branching, replace=False) for _ in range(states)]),
        chances=draw.dirichlet(np.ones(branching), size=states),
        following=following,
    )
