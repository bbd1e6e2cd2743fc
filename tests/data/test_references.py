"""Reference losses against slow counting with dictionaries, and against gzip itself."""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ablate.data import Corpus, open_corpus, parse, prepare
from ablate.data.references import (
    PIECES,
    bigram_probabilities,
    kneser_ney_probabilities,
    references,
    spread,
    unigram_probabilities,
)
from store.documents.data import COUNTED, counted_tokens


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


def test_references_are_means_over_the_tokens_that_runs_are_judged_on(corpus: Corpus) -> None:
    """Whose windows and bytes are those of `held_out_rows`, by which runs are judged. Of contexts, all tokens before
    are known, also those before the window."""
    context, train = 16, spread(corpus, 2000).tolist()
    found = references(corpus, context, 2000)
    held_out = corpus.tokens("test").tolist()
    (rows,) = corpus.held_out_rows("test", context)
    targets = [start + at for start in corpus.held_out_starts("test", context) for at in range(1, context + 1)]
    assert [held_out[at] for at in targets] == rows.rows[:, 1:].ravel().tolist()
    assert found.bytes_per_token == pytest.approx(rows.sizes[:, 1:].mean())
    counted = Counted(train, corpus.vocab_size)
    assert found.unigram == pytest.approx(-np.mean([math.log(counted.unigram(held_out[at])) for at in targets]))
    bigrams = [math.log(counted.bigram(held_out[at - 1], held_out[at])) for at in targets]
    assert found.bigram == pytest.approx(-np.mean(bigrams))
    longer = kneser_ney_probabilities(np.array(train), corpus.vocab_size, np.array(held_out), (3, 5))
    assert found.kn3 == pytest.approx(-np.log(longer[3][targets]).mean())
    assert found.kn5 == pytest.approx(-np.log(longer[5][targets]).mean())
    assert found.gzip / (found.bytes_per_token * math.log(2)) == pytest.approx(
        corpus.meta.references.gzip_bits_per_byte
    )


def test_references_are_computed_once(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a number of tokens, to two digits, and a context; then they are read from the corpus's folder."""
    first, whole = references(corpus, 16, 2012), references(corpus, 16)
    assert (first.tokens, whole.tokens) == (2000, corpus.train_tokens)
    assert whole.kn5 < first.kn5
    again = open_corpus(corpus.directory)
    assert isinstance(again, Corpus)
    monkeypatch.setattr("ablate.data.references.kneser_ney_probabilities", None)  # raises if it is called
    assert references(again, 16, 1990) == first
    assert references(again, 16, 10 * corpus.train_tokens) == whole
    assert corpus.folder.known_references() == [(16, 2000), (16, corpus.train_tokens)]
    with pytest.raises(TypeError):
        references(again, 32, 2000)


def test_tokens_are_taken_in_order_from_all_over_the_text(corpus: Corpus) -> None:
    train = corpus.tokens("train").tolist()
    taken = spread(corpus, 10 * PIECES).tolist()
    pieces = [taken[at : at + 10] for at in range(0, len(taken), 10)]
    assert len(pieces) == PIECES
    assert pieces[0] == train[:10]
    assert pieces[-1] == train[-10:]
    step = (len(train) - 10 * PIECES) / (PIECES - 1)
    places = [round(10 * number + number * step - 0.5) for number in range(PIECES)]
    assert all(
        piece in [train[at + near : at + near + 10] for near in (-1, 0, 1)]
        for at, piece in zip(places[1:-1], pieces[1:-1], strict=True)
    )
    assert spread(corpus, len(train)).tolist() == train


@pytest.mark.parametrize(
    ("read", "available", "counted"),
    [
        (1_110_016, 2_952_035, 1_100_000),
        (417_792, 2_952_035, 420_000),
        (2_960_000, 2_952_035, 2_952_035),
        (2_950_000, 2_952_035, 2_952_035),
        (None, 2_952_035, 2_952_035),
        (None, 3 * COUNTED, COUNTED),
        (2 * COUNTED, 3 * COUNTED, COUNTED),
        (7, 100, 7),
    ],
)
def test_counted_tokens_are_those_of_a_run_to_two_digits(read: int | None, available: int, counted: int) -> None:
    assert counted_tokens(read, available) == counted
