"""Two-level factorial designs: the runs that estimate effects of k factors, and the effects that they alias. Pure.

A full design has all 2^k combinations of the levels −1 and 1. A fraction of 2^(k−p) runs sets p of the factors to
± products of others, its generators (D = ABC). Products of generators are the words of the defining relation
(I = ABCD), and an effect is aliased with its product with every word: the runs show only their sum, or their difference
if the word's length is odd. The signs set every factor to −1 in the first run, the base, so that every design contains
the base. The resolution is the length of the shortest word:

    III  main effects are aliased with two-factor interactions
    IV   main effects are clear of them; two-factor interactions are aliased with each other
    V    both are clear of each other

The generators chosen are those with the fewest short words (minimum aberration, Fries and Hunter 1980). Box, Hunter and
Hunter 2005, *Statistics for Experimenters*, chapter 6; Montgomery, *Design and Analysis of Experiments*, chapter 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, permutations
from math import comb

import numpy as np
from numpy.typing import NDArray

MOST_FRACTIONS = 300_000
MOST_ORDERS = 5_000

Floats = NDArray[np.float64]

ALIASING = {
    3: "main effects are aliased with two-factor interactions",
    4: "main effects are clear of two-factor interactions, which are aliased with each other",
}
CLEAR = "main effects and two-factor interactions are clear of each other"
ROMAN = {3: "III", 4: "IV", 5: "V", 6: "VI", 7: "VII", 8: "VIII"}

Generators = tuple[int, ...]
"""Words as bit masks over the factors."""
Effect = tuple[str, ...]
"""An effect, as factors in the order of the design: one for a main effect, two for an interaction, their product."""


@dataclass(frozen=True)
class Design:
    """A regular design: the first `basic` factors have all combinations; every generator sets one more factor."""

    factors: tuple[str, ...]
    basic: int
    generators: Generators

    @cached_property
    def words(self) -> tuple[int, ...]:
        """The defining relation without the identity, the shortest first."""
        return tuple(sorted(_closure(self.generators) - {0}, key=lambda word: (word.bit_count(), word)))

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word; None for a full design, whose effects are all clear."""
        return self.words[0].bit_count() if self.words else None

    @cached_property
    def levels(self) -> Floats:
        """(runs, factors) of −1 and 1, the base first; the first factor changes from run to run."""
        runs = 2**self.basic
        table = np.ones((runs, len(self.factors)))
        for column in range(self.basic):
            table[:, column] = np.where(np.arange(runs) >> column & 1, 1.0, -1.0)  # bits of the run's number
        for column, word in enumerate(self.generators, start=self.basic):
            product = table[:, [i for i in range(self.basic) if word >> i & 1]].prod(axis=1)
            table[:, column] = (-1) ** word.bit_count() * product  # the sign makes the first run all −1
        return table

    def contrast(self, effect: Effect) -> Floats:
        """(runs,) of −1 and 1: the product of the factors' levels."""
        return np.asarray(self.levels[:, [self.factors.index(name) for name in effect]].prod(axis=1))

    def aliases(self, effect: Effect, longest: int = 2) -> tuple[Effect, ...]:
        """Other effects of at most `longest` factors that are aliased with this one."""
        own = sum(1 << self.factors.index(name) for name in effect)
        masks = sorted((own ^ word for word in self.words), key=lambda mask: (mask.bit_count(), mask))
        return tuple(self._named(mask) for mask in masks if 0 < mask.bit_count() <= longest)

    def aliased(self, effects: Sequence[Effect]) -> tuple[Effect, Effect] | None:
        """The first two of these effects that are aliased with each other; None if all are clear."""
        words = set(self.words)
        masks = {effect: sum(1 << self.factors.index(name) for name in effect) for effect in effects}
        pairs = combinations(effects, 2)
        return next(((one, other) for one, other in pairs if masks[one] ^ masks[other] in words), None)

    def alias_text(self, longest: int = 2) -> tuple[str, ...]:
        """A line for each set of aliased effects of at most `longest` factors: `A×B = C×D`, `A = −B×C`."""
        lines: list[str] = []
        seen: set[Effect] = set()
        for size in range(1, longest + 1):
            for effect in combinations(self.factors, size):
                chain = (effect, *self.aliases(effect, longest))
                if len(chain) > 1 and effect not in seen:
                    # A minus: the runs show the difference of two aliased effects rather than their sum.
                    signs = ("−" * ((len(effect) + len(each)) % 2 == 1) for each in chain)
                    lines.append(" = ".join(sign + "×".join(each) for sign, each in zip(signs, chain, strict=True)))
                seen.update(chain)
        return tuple(lines)

    def _named(self, mask: int) -> Effect:
        return tuple(name for i, name in enumerate(self.factors) if mask >> i & 1)


def design(factors: Sequence[str], runs: int) -> Design:
    """The best regular design with this number of runs, a power of two; a full one if all combinations fit.

    Raises ValueError if there is none, or too many to search.
    """
    basic = runs.bit_length() - 1
    added = len(factors) - basic
    candidates = [mask for mask in range(2**basic) if mask.bit_count() >= 2]
    if not factors or runs != 2**basic or not 0 <= added <= len(candidates):
        possible = ", ".join(str(2**basic) for basic in range(1, len(factors) + 1) if 2**basic > len(factors))
        raise ValueError(f"no two-level design of {len(factors)} factors has {runs} runs: choose {possible}")
    if comb(len(candidates), added) > MOST_FRACTIONS:
        raise ValueError(f"too many designs of {len(factors)} factors in {runs} runs to search: use fewer factors")
    products = sorted(candidates, key=int.bit_count, reverse=True)
    return Design(tuple(factors), basic, _least_aberration(products, basic, added))


def design_for(factors: Sequence[str], runs: int, interactions: Sequence[Effect]) -> Design:
    """`design`, with its factors in an order in which these interactions are clear of each other and of main effects.

    Raises ValueError if no such order is among the first `MOST_ORDERS`, and as `design` does.
    """
    best = design(factors, runs)
    effects = [*((factor,) for factor in factors), *interactions]
    for order in islice(permutations(factors), MOST_ORDERS):
        found = replace(best, factors=order)
        if found.aliased(effects) is None:
            return found
    one, other = ("×".join(effect) for effect in best.aliased(effects) or ())
    raise ValueError(f"{one} is aliased with {other}: use more runs or fewer interactions")


def _least_aberration(products: Sequence[int], basic: int, added: int) -> Generators:
    """The best choice of generators, by depth-first search.

    A further generator only adds words, so a partial choice with more short words than the best design is dropped.
    """
    best: tuple[tuple[int, ...], Generators] | None = None
    starts: list[tuple[int, Generators]] = [(0, ())]
    while starts:
        first, chosen = starts.pop()
        # Numbers of words of each length, the shortest first: lexicographically smaller is better.
        lengths = Counter(word.bit_count() for word in _closure(chosen))
        rated = (tuple(lengths[length] for length in range(1, max(lengths) + 1)), chosen)
        if best is not None and rated[0] >= best[0]:
            continue
        if len(chosen) == added:
            best = rated
            continue
        # A generator's word: its product of basic factors, times the factor that is set to this product.
        last = len(products) - added + len(chosen) + 1
        own = 1 << basic + len(chosen)
        starts += [(i + 1, (*chosen, products[i] | own)) for i in reversed(range(first, last))]
    assert best is not None
    return best[1]


def _closure(generators: Generators) -> set[int]:
    """All products of the generators, the empty one included: a product of words is the XOR of their masks."""
    words = {0}
    for generator in generators:
        words |= {word ^ generator for word in words}
    return words


def structure(factors: int, runs: int, resolution: int | None) -> str:
    """`A fraction of resolution IV, 16 of 64 combinations of 6 factors: main effects are clear of …`."""
    if resolution is None:
        return f"All {runs} combinations of {factors} factors: no effects are aliased."
    size = f"{runs} of {2**factors} combinations of {factors} factors"
    return f"A fraction of resolution {ROMAN.get(resolution, resolution)}, {size}: {ALIASING.get(resolution, CLEAR)}."
