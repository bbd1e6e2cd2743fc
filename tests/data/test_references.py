"""Reference losses against slow counting with dictionaries, and against gzip itself."""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ablate.data import Corpus, parse, prepare
from ablate.data.references import bigram_probabilities, unigram_probabilities


@pytest.fixture
def corpus(corpus_file: Path, tmp_path: Path) -> Corpus:
    spec = {"source": "files", "paths": str(corpus_file), "tokenizer": {"kind": "bpe", "vocab_size": 300}}
    return prepare(parse(spec), tmp_path / "data")


class Counted:
    """The two models, as their formulas say."""

    def __init__(self, train: list[int], vocab_size: int) -> None:
        self.single, self.total, self.vocab_size = Counter(train), len(train), vocab_size
        self.after: dict[int, Counter[int]] = defaultdict(Counter)
        for before, token in pairwise(train):
            self.after[before][token] += 1

    def unigram(self, token: int) -> float:
        return (self.single[token] + 1) / (self.total + self.vocab_size)

    def bigram(self, before: int, token: int) -> float:
        seen = self.after[before]
        if not seen:
            return self.unigram(token)
        return (seen[token] + len(seen) * self.unigram(token)) / (seen.total() + len(seen))


def test_they_are_what_counting_gives(corpus: Corpus) -> None:
    model = Counted(corpus.tokens("train").tolist(), corpus.vocab_size)
    held_out = corpus.tokens("test").tolist()
    pairs = list(pairwise(held_out))
    found = corpus.meta.references
    assert found.uniform == pytest.approx(math.log(300))
    assert found.unigram == pytest.approx(-np.mean([math.log(model.unigram(token)) for _, token in pairs]))
    assert found.bigram == pytest.approx(-np.mean([math.log(model.bigram(*pair)) for pair in pairs]))
    assert found.bigram < found.unigram < found.uniform


def test_gzip_is_gzip_s(corpus: Corpus) -> None:
    text = "".join(corpus.held_out("test")).encode()
    bits = 8 * len(gzip.compress(text, 9))
    found = corpus.meta.references
    assert found.gzip_bits_per_byte == pytest.approx(bits / len(text), rel=1e-3)
    assert found.gzip == pytest.approx(bits * math.log(2) / len(corpus.tokens("test")), rel=1e-3)


@pytest.mark.parametrize("tokens", [7, 700])
def test_probabilities_sum_to_one_after_any_token(tokens: int) -> None:
    """After one that is never followed by anything too. Of a text with more tokens than there are pairs, these are
    counted in a table."""
    train = np.resize(np.array([0, 1, 2, 1, 1, 0, 1], dtype="<u2"), tokens)
    train[-1] = 3
    unigrams, model = unigram_probabilities(train, 5), Counted(train.tolist(), 5)
    assert unigrams.sum() == pytest.approx(1)
    assert bigram_probabilities(train, unigrams, np.array([0, 1, 1, 4]))[:2] == pytest.approx(
        [model.bigram(0, 1), model.bigram(1, 1)]
    )
    for before in range(5):
        pairs = [bigram_probabilities(train, unigrams, np.array([before, after]))[0] for after in range(5)]
        assert sum(pairs) == pytest.approx(1)


@pytest.mark.parametrize(
    ("loss", "outcome"), [(6.0, "diverged"), (math.log(300), "diverged"), (math.nan, "diverged"), (1.0, "trained")]
)
def test_the_outcome_of_a_run_follows_from_its_loss(corpus: Corpus, loss: float, outcome: str) -> None:
    assert corpus.meta.references.outcome(loss) == outcome


def test_a_run_near_the_unigram_loss_has_stalled(corpus: Corpus) -> None:
    found = corpus.meta.references
    assert found.outcome(found.unigram - 0.09) == "stalled"
    assert found.outcome(found.unigram - 0.11) == "trained"
