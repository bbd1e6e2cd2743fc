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

import numpy as np

from ablate.data.corpus import Corpus
from ablate.data.ngrams import (
    Floats,
    Tokens,
    bigram_probabilities,
    kneser_ney_probabilities,
    unigram_probabilities,
)
from ablate.data.writing import SplitWriter
from store import DataFolder
from store.documents import PerSplit, ReferenceLosses, References, ReferencesDocument
from store.documents.references import COUNTED, counted_tokens

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
    if known is None:
        known = ReferencesDocument(
            digest=corpus.digest, context=context, references=_computed(corpus, context, spread(corpus, count))
        )
        corpus.folder.write_references(known)
    return known.references


def spread(corpus: Corpus, count: int) -> Tokens:
    """`count` training tokens, in `PIECES` pieces spread evenly over the corpus; all in order if it has no more. The
    n-grams across the joints are counted too: of a million tokens, every thousandth 5-gram."""
    train = corpus.tokens("train")
    if count >= len(train):
        return train
    ends = np.arange(PIECES + 1) * count // PIECES
    starts = ends[:-1] + np.arange(PIECES) * (len(train) - count) // (PIECES - 1)
    return np.concatenate([train[start : start + size] for start, size in zip(starts, np.diff(ends), strict=True)])


def _computed(corpus: Corpus, context: int, train: Tokens) -> References:
    held_out, sizes = corpus.held_out_tokens("test")
    starts = corpus.held_out_starts("test", context)
    judged = (starts[:, None] + np.arange(1, context + 1)).ravel()
    unigrams = unigram_probabilities(train, corpus.vocab_size)
    kneser_ney = kneser_ney_probabilities(train, corpus.vocab_size, held_out, (3, 5))
    bytes_per_token = float(sizes[judged].mean())
    return References(
        tokens=len(train),
        unigram=_loss(unigrams[held_out[judged]]),
        bigram=_loss(bigram_probabilities(train, unigrams, held_out)[judged - 1]),
        kn3=_loss(kneser_ney[3][judged]),
        kn5=_loss(kneser_ney[5][judged]),
        gzip=corpus.meta.references.gzip_bits_per_byte * math.log(2) * bytes_per_token,
        bytes_per_token=bytes_per_token,
    )


def _loss(probabilities: Floats) -> float:
    return -float(np.log(probabilities).mean())
