"""Reference losses of a corpus: those of simple statistical models on its test part. numpy only.

    uniform   ln V
    unigram   p(b) = (n(b) + 1) / (N + V)
    bigram    p(b | a) = (n(ab) + t(a) p(b)) / (n(a) + t(a)); t(a): number of distinct tokens after a
    gzip      size of the test part under gzip -9, divided by its tokens

n counts training tokens. The bigram's smoothing (Witten and Bell 1991) has no parameter to tune.
"""

from __future__ import annotations

import json
import math
import zlib

import numpy as np
from numpy.typing import NDArray

from ablate.data.writing import SplitWriter
from ablate.store import DataFolder
from ablate.store.documents import PerSplit, ReferenceLosses

Tokens = NDArray[np.integer]
Floats = NDArray[np.float64]

COUNTED = 20_000_000
"""Maximum number of tokens read from each split: more would take minutes and change no loss by 0.01."""
GZIP_FORMAT = 31
"""zlib's code for a gzip header and its largest window of 32 kB."""


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
        unigram=-float(np.log(unigrams[held_out[1:]]).mean()),
        bigram=-float(np.log(bigram_probabilities(train, unigrams, held_out)).mean()),
        gzip=bits_per_byte * math.log(2) * size.test / tokens.test,
        gzip_bits_per_byte=bits_per_byte,
    )


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


def _counted(pairs: NDArray[np.int64], vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs in order, and the count of each. A table of all V² pairs is ten times as fast as sorting; it
    is used if it is no larger than the text."""
    if vocab_size**2 > len(pairs):
        return np.unique(pairs, return_counts=True)
    table = np.bincount(pairs)
    found = np.flatnonzero(table)
    return found, table[found]


def _pairs(tokens: Tokens, vocab_size: int) -> NDArray[np.int64]:
    """(n − 1,): each token and its successor, encoded as one number."""
    wide = tokens.astype(np.int64)
    return wide[:-1] * vocab_size + wide[1:]
