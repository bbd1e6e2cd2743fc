"""Kneser–Ney models against counting with dictionaries as the formulas say, and against numbers computed by hand."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from ablate.data.references import kneser_ney_probabilities

Gram = tuple[int, ...]


class SlowKneserNey:
    """Interpolated Kneser–Ney by its definition, one probability at a time."""

    def __init__(self, train: list[int], vocab_size: int, order: int) -> None:
        self.vocab_size, self.order = vocab_size, order
        grams = {n: Counter(zip(*(train[at:] for at in range(n)), strict=False)) for n in range(1, order + 1)}
        self.counts: dict[int, Counter[Gram]] = {order: grams[order]}
        for n in range(1, order):
            before: defaultdict[Gram, set[int]] = defaultdict(set)
            for gram in grams[n + 1]:
                before[gram[1:]].add(gram[0])
            self.counts[n] = Counter({gram: len(tokens) for gram, tokens in before.items()})

    def discount(self, n: int) -> float:
        ones, twos = (sum(count == each for count in self.counts[n].values()) for each in (1, 2))
        return ones / (ones + 2 * twos) if ones else 0.5

    def probability(self, context: Gram, token: int) -> float:
        """p(token | context), of at most order − 1 tokens."""
        n = len(context) + 1
        below = self.probability(context[1:], token) if context else 1 / self.vocab_size
        after = [count for gram, count in self.counts[n].items() if gram[:-1] == context]
        if not after:
            return below
        discount = self.discount(n)
        kept = max(self.counts[n][(*context, token)] - discount, 0)
        return (kept + discount * len(after) * below) / sum(after)


def slow(train: list[int], vocab_size: int, order: int, held_out: list[int]) -> list[float]:
    model = SlowKneserNey(train, vocab_size, order)
    contexts = (tuple(held_out[max(0, at - order + 1) : at]) for at in range(len(held_out)))
    return [model.probability(context, token) for context, token in zip(contexts, held_out, strict=True)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("vocab_size", [2, 7, 40])
def test_probabilities_are_those_of_the_definition(vocab_size: int, seed: int) -> None:
    """Over repetitive texts of some hundred tokens, in which contexts of all lengths recur, others are new, and some
    tokens of the vocabulary are in neither text."""
    draw = np.random.default_rng(seed)
    train, held_out = (np.minimum(draw.zipf(1.6, size=n) - 1, vocab_size - 2 + (vocab_size == 2)) for n in (300, 120))
    held_out[-20:] = draw.integers(0, vocab_size, 20)
    found = kneser_ney_probabilities(train.astype("<u2"), vocab_size, held_out.astype("<u2"), (1, 2, 3, 5))
    for order, probabilities in found.items():
        expected = slow(train.tolist(), vocab_size, order, held_out.tolist())
        assert probabilities == pytest.approx(expected, rel=1e-12), order


def test_bigrams_of_a_tiny_text_by_hand() -> None:
    """Of `a b a b a c`: bigrams ab 2, ba 2, ac 1, so D = 1 / (1 + 2·2) = 0.2. Before b and c stands a alone, before a
    stands b alone: each counts 1, of 3, with D = 3 / (3 + 0) = 1, which leaves all to 1/V = 1/4. After a (3 times, 2
    distinct tokens): b (2 − 0.2 + 0.2·2/4) / 3, c (1 − 0.2 + 0.1) / 3, others 0.1 / 3. After c: nothing, so 1/4."""
    a, b, c, d = range(4)
    train, held_out = np.array([a, b, a, b, a, c]), np.array([d, a, b, a, c, d, b, b])
    found = kneser_ney_probabilities(train, 4, held_out, (2,))[2]
    after_b = (2 - 0.2 + 0.2 / 4) / 2
    expected = [0.25, 0.25, 1.9 / 3, after_b, 0.9 / 3, 0.25, 0.25, 0.2 / 4 / 2]
    assert found.tolist() == pytest.approx(expected)


def test_unigrams_of_a_tiny_text_by_hand() -> None:
    """Of `a a a b b c`: counts 3, 2, 1, so D = 1 / (1 + 2) = 1/3, and 3 · D = 1 is left to V = 5 tokens alike."""
    found = kneser_ney_probabilities(np.array([0, 0, 0, 1, 1, 2]), 5, np.arange(5), (1,))[1]
    left = 1 / 5
    expected = [(3 - 1 / 3 + left) / 6, (2 - 1 / 3 + left) / 6, (1 - 1 / 3 + left) / 6, left / 6, left / 6]
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [3, 6, 60, 3000])
def test_probabilities_sum_to_one_over_the_vocabulary(order: int, length: int) -> None:
    """After contexts that training has, often or once, ends with, or lacks."""
    draw, vocab_size = np.random.default_rng(length), 6
    train = np.minimum(draw.geometric(0.4, length) - 1, 4)
    contexts = [*(train[at : at + 4] for at in draw.integers(0, max(1, length - 4), 12)), train[-4:], [5, 5, 5, 5]]
    for context in contexts:
        rows = [np.array([*context, token]) for token in range(vocab_size)]
        total = sum(kneser_ney_probabilities(train, vocab_size, row, (order,))[order][-1] for row in rows)
        assert total == pytest.approx(1)


def test_a_text_of_an_orders_length_is_counted() -> None:
    """A single token has no bigram: every context is new."""
    assert kneser_ney_probabilities(np.array([1]), 4, np.array([1, 1]), (3,))[3] == pytest.approx([0.25, 0.25])
