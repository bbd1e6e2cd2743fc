"""`data/<digest>/references-<context>-<tokens>.json`: losses of simple models on the text that verdicts compare.

A model that is worse than a bigram table has not learned which token follows which, so a difference between two such
models says little about how they would train.
"""

from __future__ import annotations

import math
from typing import Annotated, Self

from store.documents._document import Document, NatsPerToken, Part, Tokens, Unit

COUNTED = 20_000_000
"""Most training tokens that a simple model counts: more would take minutes."""
MODELS = ("unigram", "bigram", "kn3", "kn5", "gzip")


class References(Part):
    """Losses of simple models on the held-out tokens over which a run's final loss is the mean."""

    tokens: Tokens
    """Training tokens that the n-gram models count."""
    unigram: NatsPerToken
    """Frequencies of tokens, with add-one smoothing."""
    bigram: NatsPerToken
    """Bigram table, with Witten and Bell's smoothing (1991)."""
    kn3: NatsPerToken
    """Trigrams: interpolated Kneser–Ney, with one discount n₁ / (n₁ + 2n₂) for each order (Chen & Goodman 1999)."""
    kn5: NatsPerToken
    """5-grams, smoothed in the same way."""
    gzip: NatsPerToken
    """`gzip -9` of the test part's documents alone, at its bits per byte."""
    bytes_per_token: Annotated[float, Unit("bytes/token")]
    """Bytes of the held-out tokens, divided by their number."""

    @property
    def bits_per_byte(self) -> dict[str, float]:
        """The losses in bits per byte, by model."""
        return {name: getattr(self, name) / (self.bytes_per_token * math.log(2)) for name in MODELS}

    def per_byte(self) -> Self:
        """The same losses in nats per byte, beside losses of arms with different tokenizers."""
        losses = {name: getattr(self, name) / self.bytes_per_token for name in MODELS}
        return self.model_copy(update={**losses, "bytes_per_token": 1.0})

    def is_below_bigrams(self, loss: float) -> bool:
        """Whether a model with this loss predicts the text no better than the bigram table does."""
        return loss >= self.bigram

    def standing(self, loss: float) -> str:
        """Where a loss stands among the n-gram models: `worse than bigrams`, `between bigrams and trigrams`, `between
        trigrams and 5-grams`, `better than 5-grams`. On little text 5-grams may be worse than trigrams, so the models
        named are the nearest on either side."""
        if self.is_below_bigrams(loss):
            return "worse than bigrams"
        losses = {"bigrams": self.bigram, "trigrams": self.kn3, "5-grams": self.kn5}
        beaten = min((name for name in losses if losses[name] > loss), key=losses.__getitem__)
        ahead = max((name for name in losses if losses[name] <= loss), key=losses.__getitem__, default=None)
        return f"between {beaten} and {ahead}" if ahead else f"better than {beaten}"


class ReferencesDocument(Document):
    """Losses of simple models for runs of one context and one number of training tokens."""

    digest: str
    """The name of the corpus's folder."""
    context: Tokens
    """Tokens in a window, on which the choice of held-out tokens depends."""
    references: References
    """The losses."""


def counted_tokens(read: int | None, available: int) -> int:
    """Number of training tokens that the n-gram models of a run count: those that it reads, to two significant digits,
    so that arms of nearly equal length share their models; repetitions count once. read: None for all."""
    most = min(available, COUNTED)
    if read is None or read >= most:
        return most
    return min(most, int(float(f"{read:.2g}")))
