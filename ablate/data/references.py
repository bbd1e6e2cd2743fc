"""Reference losses of a corpus: those of simple models of its training tokens (`ngrams.py`), and of gzip.

    uniform   ln V
    gzip      size of the test part's documents under gzip -9, which has seen nothing before them, per byte of them

n-gram models read the training tokens once, or as many of them as a run does, and know the tokens before a held-out one
even where the window of a neural network begins after these.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ablate.data.corpus import Corpus, SplitWriter
from store import DataFolder
from store.documents import PerSplit, ReferenceLosses, References, ReferencesDocument
from store.documents.data import COUNTED, counted_tokens

# n-gram models of a text: probabilities that they give to held-out tokens. numpy only.
#
#     unigram      p(b) = (n(b) + 1) / (N + V)
#     bigram       p(b | a) = (n(ab) + t(a) p(b)) / (n(a) + t(a)); t(a): number of distinct tokens after a
#     Kneser–Ney   p(w | h) = (max(c(hw) − D, 0) + D t(h) p(w | h′)) / c(h); h′: h without its first token
#
# The bigram's smoothing is Witten and Bell's (1991), which has no parameter to tune. Kneser–Ney is the interpolated
# form with one discount for each order (Chen & Goodman 1999, A.3: "An empirical study of smoothing techniques for
# language modeling", Computer Speech & Language 13): in the highest order c counts occurrences, in each lower one the
# distinct tokens before them; c(h) = Σ c(hw), t(h) is the number of w with c(hw) > 0, and D = n₁ / (n₁ + 2n₂), where
# n₁ and n₂ are the numbers of n-grams of that order with c = 1 and c = 2. Below the unigrams is 1/V, and a context
# that training lacks leaves p(w | h′).

Tokens = NDArray[np.integer]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DISCOUNT = 0.5
"""Discount of an order without n-grams that count 1, where the formula gives none."""


def unigram_probabilities(train: Tokens, vocab_size: int) -> Floats:
    """(V,): add-one smoothed frequencies of the training tokens."""
    return (np.bincount(train, minlength=vocab_size) + 1) / (len(train) + vocab_size)


def bigram_probabilities(train: Tokens, unigrams: Floats, held_out: Tokens) -> Floats:
    """(n − 1,): probability of each held-out token but the first, given the token before it."""
    vocab_size = len(unigrams)
    pairs, counts = _counted(_pairs(train, vocab_size), vocab_size)
    first = pairs // vocab_size
    followers = np.bincount(first, minlength=vocab_size)
    seen = np.bincount(first, weights=counts, minlength=vocab_size)
    before, after = held_out[:-1], held_out[1:]
    wanted = _pairs(held_out, vocab_size)
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    together = np.where(pairs[place] == wanted, counts[place], 0)
    # a token that nothing follows in training has followers 0 and seen 0: its successor gets the unigram probability
    weight = np.where(followers[before], followers[before], 1)
    found: Floats = (together + weight * unigrams[after]) / (seen[before] + weight)
    return found


def _counted(pairs: Ints, vocab_size: int) -> tuple[Ints, Ints]:
    """The distinct pairs in order, and the count of each. A table of all V² pairs is ten times as fast as sorting; it
    is used if it is no larger than the text."""
    if vocab_size**2 > len(pairs):
        return np.unique(pairs, return_counts=True)
    table = np.bincount(pairs)
    found = np.flatnonzero(table)
    return found, table[found]


def _pairs(tokens: Tokens, vocab_size: int) -> Ints:
    """(n − 1,): each token and its successor, encoded as one number."""
    wide = tokens.astype(np.int64)
    return wide[:-1] * vocab_size + wide[1:]


def kneser_ney_probabilities(
    train: Tokens, vocab_size: int, held_out: Tokens, orders: Collection[int]
) -> dict[int, Floats]:
    """(n,) for each order: probability of each held-out token, given the tokens before it, at most order − 1 of them.

    The first tokens have fewer before them. The models share their lower orders, and so are counted together.
    """
    found: dict[int, Floats] = {}
    below: Floats = np.full(len(held_out), 1 / vocab_size)
    grams = _Grams.empty(len(train), len(held_out)).longer(train, held_out, vocab_size)
    for order in range(1, max(orders)):
        if order in orders:
            found[order] = _interpolated(grams, grams.counts, below)
        longer = grams.longer(train, held_out, vocab_size)
        # distinct tokens before an n-gram: as many as there are n-grams of one token more that end in it
        below = _interpolated(grams, np.bincount(longer.ends_in, minlength=len(grams.counts)), below)
        grams = longer
    return found | {max(orders): _interpolated(grams, grams.counts, below)}


@dataclass(frozen=True)
class _Grams:
    """The distinct n-grams of a training text, numbered.

    The last three are of tokens, with n training and m held-out ones; −1 stands for an n-gram that reaches back before
    the first token, or that the training text lacks.
    """

    counts: Ints
    """Occurrences of each."""
    of: Ints
    """Number, among those of one token less, of each one's context: all but its last token."""
    ends_in: Ints
    """Number, among those of one token less, of all but its first token."""
    ids: Ints
    """(n + 1,): the one that ends before each training token, and before the end."""
    held_out_ids: Ints
    """(m + 1,): the same in the held-out text."""
    contexts: Ints
    """(m,): number of the context of each held-out token, among those of one token less."""

    @classmethod
    def empty(cls, train: int, held_out: int) -> Self:
        """The single n-gram of no tokens, which ends everywhere."""
        one, ends, contexts = np.zeros(1, np.int64), np.zeros(train + 1, np.int64), np.zeros(held_out, np.int64)
        return cls(one + train, one, one, ends, np.append(contexts, 0), contexts)

    def longer(self, train: Tokens, held_out: Tokens, vocab_size: int) -> Self:
        """The n-grams of one token more."""
        contexts, others = self.ids[:-1], self.held_out_ids[:-1]
        known = np.flatnonzero(contexts >= 0)
        keys = contexts[known] * vocab_size + train[known]
        grams, first, numbers, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        ids = np.full(len(self.ids), -1)
        ids[known + 1] = numbers
        wanted = others * vocab_size + held_out
        place = np.searchsorted(grams, wanted)
        seen = (others >= 0) & (np.append(grams, -1)[place] == wanted)
        return type(self)(
            counts=counts,
            of=grams // vocab_size,
            ends_in=self.ids[known[first] + 1],
            ids=ids,
            held_out_ids=np.append(-1, np.where(seen, place, -1)),
            contexts=others,
        )


def _interpolated(grams: _Grams, counts: Ints, below: Floats) -> Floats:
    """Probability of each held-out token given its context, interpolated with `below`. counts: c of each n-gram."""
    ones, twos = (int(np.count_nonzero(counts == each)) for each in (1, 2))
    discount = ones / (ones + 2 * twos) if ones else DISCOUNT
    size = int(grams.contexts.max(initial=0)) + 1
    # The 0 at the end is what −1 picks: of contexts and n-grams that training lacks.
    total, types = (
        np.append(np.bincount(grams.of, weights=each, minlength=size), 0)[grams.contexts]
        for each in (counts, counts > 0)
    )
    count = np.append(counts, 0)[grams.held_out_ids[1:]]
    upper = np.maximum(count - discount, 0) + discount * types * below
    found: Floats = np.where(total > 0, upper / np.maximum(total, 1), below)
    return found


GZIP_FORMAT = 31
"""zlib's code for a gzip header and its largest window of 32 kB."""
PIECES = 256
"""Number of pieces, spread evenly over the training tokens, in which as many tokens are taken as a run reads: its
windows are spread too, and the first tokens may all be of one author."""


def reference_losses(folder: DataFolder, vocab_size: int, size: PerSplit, tokens: PerSplit) -> ReferenceLosses:
    """Reference losses of a corpus whose files are written. size, tokens: bytes and tokens of its splits."""
    dtype = np.dtype(SplitWriter.dtype_of(vocab_size))
    train, held_out = (np.fromfile(folder.tokens_path(each), dtype, COUNTED) for each in ("train", "test"))
    packer = zlib.compressobj(9, wbits=GZIP_FORMAT)
    with folder.texts_path("test").open("rb") as lines:
        packed = sum(len(packer.compress(json.loads(line)["text"].encode())) for line in lines)
    bits_per_byte = 8 * (packed + len(packer.flush())) / size.test
    unigrams = unigram_probabilities(train, vocab_size)
    return ReferenceLosses(
        uniform=math.log(vocab_size),
        unigram=_loss(unigrams[held_out[1:]]),
        bigram=_loss(bigram_probabilities(train, unigrams, held_out)),
        gzip=bits_per_byte * math.log(2) * size.test / tokens.test,
        gzip_bits_per_byte=bits_per_byte,
    )


def references(corpus: Corpus, context: int, tokens: int | None = None) -> References:
    """Losses of simple models on the tokens that a run's final loss is the mean of, computed once and then stored with
    the corpus.

    context: tokens in a window of these runs, on which the choice of held-out tokens depends. tokens: number of
    training tokens that a run reads, repetitions included; None for all training tokens.

    Raises DataError if the test part is shorter than one window.
    """
    count = counted_tokens(tokens, corpus.train_tokens)
    known = corpus.folder.read_references(context, count)
    if known is not None:
        return known.references
    train = spread(corpus, count)
    held_out, sizes = corpus.held_out_tokens("test")
    starts = corpus.held_out_starts("test", context)
    judged = (starts[:, None] + np.arange(1, context + 1)).ravel()
    unigrams = unigram_probabilities(train, corpus.vocab_size)
    kneser_ney = kneser_ney_probabilities(train, corpus.vocab_size, held_out, (3, 5))
    bytes_per_token = float(sizes[judged].mean())
    found = References(
        tokens=len(train),
        unigram=_loss(unigrams[held_out[judged]]),
        bigram=_loss(bigram_probabilities(train, unigrams, held_out)[judged - 1]),
        kn3=_loss(kneser_ney[3][judged]),
        kn5=_loss(kneser_ney[5][judged]),
        gzip=corpus.meta.references.gzip_bits_per_byte * math.log(2) * bytes_per_token,
        bytes_per_token=bytes_per_token,
    )
    corpus.folder.write_references(ReferencesDocument(digest=corpus.digest, context=context, references=found))
    return found


def spread(corpus: Corpus, count: int) -> Tokens:
    """`count` training tokens, in `PIECES` pieces spread evenly over the corpus; all in order if it has no more. The
    n-grams across the joints are counted too: of a million tokens, every thousandth 5-gram."""
    train = corpus.tokens("train")
    if count >= len(train):
        return train
    ends = np.arange(PIECES + 1) * count // PIECES
    starts = ends[:-1] + np.arange(PIECES) * (len(train) - count) // (PIECES - 1)
    return np.concatenate([train[start : start + size] for start, size in zip(starts, np.diff(ends), strict=True)])


def _loss(probabilities: Floats) -> float:
    return -float(np.log(probabilities).mean())
