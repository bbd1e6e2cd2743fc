"""A language whose entropy is known."""

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
    """Sentences of a random probabilistic regular grammar S → x S', the best loss on which is known exactly.

    As a source for transformers: Shai et al. 2024, arXiv:2405.15943; the entropy: Crutchfield & Young 1989, PRL 63:105.

    In each state `branching` of the symbols may come next, with chances drawn from a flat Dirichlet distribution, and
    each leads to a state of its own. A symbol and the state before it fix the state after it, and every sentence starts
    in the same state, so who knows the grammar knows the state: the best possible loss at a token is the entropy
    H(state) = −Σₓ p(x | state) ln p(x | state). What the states look like is not to be seen in the symbols, of which
    one may stand in many. The report shows the loss above this floor; there, the floor is that of the very sentences
    that validate, −ln p of each token, of which the entropy is the mean.
    """

    source: Literal["grammar"] = "grammar"
    length: Graded = (64,)
    """Symbols of a sentence, all of which are asked."""
    states: Annotated[int, Field(ge=2)] = 16
    """Number of hidden states of the grammar."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols, at least `branching`."""
    branching: PositiveInt = 3
    """Symbols that may come next."""
    grammar_seed: NonNegativeInt = 0
    """Seed that draws the grammar itself, whatever the seed of the run: all seeds of a study learn one language."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.branching > self.symbols:
            raise ValueError(f"branching ({self.branching}) is more than there are symbols ({self.symbols})")
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
        """A language has no answers to guess."""

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

    def entropy(self, length: int) -> float:
        """Nats per symbol of a sentence of `length` symbols: (1 / T) Σₜ Σₛ P(state at t = s) H(s)."""
        known = self.rules
        at, total = np.eye(self.states)[0], 0.0
        for _ in range(length):
            total += float(at @ known.entropies)
            at = at @ known.transitions
        return total / length

    @property
    def entropy_rate(self) -> float:
        """Nats per symbol of an endless sentence: Σₛ π(s) H(s), π being the stationary distribution."""
        known = self.rules
        balance = np.vstack((known.transitions.T - np.eye(self.states), np.ones(self.states)))
        stationary = np.linalg.lstsq(balance, np.append(np.zeros(self.states), 1.0), rcond=None)[0]
        return float(stationary @ known.entropies)


class Rules(NamedTuple):
    """(states, branching) each: the symbols that may come next, their chances, and the states that they lead to."""

    symbols: NDArray[np.int64]
    chances: Floats
    following: NDArray[np.int64]

    @property
    def entropies(self) -> Floats:
        """(states,): H of what comes next, in nats."""
        out: Floats = -(self.chances * np.log(self.chances)).sum(axis=1)
        return out

    @property
    def transitions(self) -> Floats:
        """(states, states): the chance that one follows another."""
        matrix = np.zeros((len(self.chances),) * 2)
        np.add.at(matrix, (np.arange(len(matrix))[:, None], self.following), self.chances)
        return matrix


@lru_cache
def rules(states: int, symbols: int, branching: int, seed: int) -> Rules:
    """The grammar of a seed. The first branch of each state leads to the next one, so that all are visited."""
    draw = np.random.default_rng(seed)
    following = draw.integers(states, size=(states, branching))
    following[:, 0] = np.roll(np.arange(states), -1)
    return Rules(
        symbols=np.array([draw.choice(symbols, branching, replace=False) for _ in range(states)]),
        chances=draw.dirichlet(np.ones(branching), size=states),
        following=following,
    )
