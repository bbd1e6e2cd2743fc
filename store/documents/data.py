"""Prepared data: `data/<digest>/meta.json`, the reference losses of its text, and checksums of files.

`meta.json` has one model for text and one for synthetic tasks. `references-<context>-<tokens>.json` beside it has the
losses of simple models on the text that verdicts compare: a model that is worse than a bigram table has not learned
which token follows which, so a difference between two such models says little about how they would train.

`sums.json` and `checked-<machine>.json` have the checksums of the files of a corpus or a model, and the files verified
by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from store.documents._document import (
    BitsPerByte,
    Bytes,
    Document,
    JsonObject,
    NatsPerToken,
    Part,
    Tokens,
    Unit,
    is_none,
)

NEAR_UNIGRAM = 0.1
"""Margin in nats per token: a run whose loss exceeds the unigram loss minus this has stalled."""


HeldOutPart: TypeAlias = Literal["tuning", "judging", "test"]
"""Disjoint held-out parts: for choosing settings, for validation during training, and for the losses that verdicts
compare."""


class PerSplit(Part):
    """A number for each split."""

    train: int
    """Training split."""
    tuning: int
    """Held-out part that compares the trials of `tune`."""
    judging: int
    """Held-out part of validation curves, `seeds: auto` and searches."""
    test: int
    """Held-out part of the final loss, which verdicts compare."""

    @property
    def total(self) -> int:
        return self.train + self.held_out

    @property
    def held_out(self) -> int:
        return self.tuning + self.judging + self.test


class TextSplit(Part):
    """Settings of the split of documents into training and held-out ones."""

    fraction: Annotated[float, Unit("share")] | None
    """Share of the bytes held out; null if the held-out documents were given."""
    tokens: int
    """Most tokens read of the test part; half as many of each other held-out part."""
    given: int | None = Field(default=None, exclude_if=is_none)
    """Number of held-out documents that were given."""


class ReferenceLosses(Part):
    """Losses of simple models, not neural networks, on the test part of a text corpus."""

    uniform: NatsPerToken
    """Uniform distribution: the logarithm of the vocabulary's size."""
    unigram: NatsPerToken
    """Unigram model: frequencies of training tokens, with add-one smoothing."""
    bigram: NatsPerToken
    """Bigram model, with Witten and Bell's smoothing."""
    gzip: NatsPerToken
    """The test part under `gzip -9`, spread over its tokens."""
    gzip_bits_per_byte: BitsPerByte
    """`gzip` in bits per byte of text."""

    @property
    def sentence(self) -> str:
        """`Reference losses of the whole text, in nats per token: uniform 6.931, unigram 5.978, …`."""
        packed = f"gzip {self.gzip:.3f} ({self.gzip_bits_per_byte:.2f} bits per byte)"
        counted = f"uniform {self.uniform:.3f}, unigram {self.unigram:.3f}, bigram {self.bigram:.3f}"
        return f"Reference losses of the whole text, in nats per token: {counted}, {packed}."

    @property
    def stalled_above(self) -> float:
        """Loss above which a run has stalled: near the unigram loss."""
        return self.unigram - NEAR_UNIGRAM

    def outcome(self, loss: float) -> Literal["trained", "stalled", "diverged"]:
        """Classify a run by its final loss."""
        if not loss < self.uniform:
            return "diverged"
        return "stalled" if loss > self.stalled_above else "trained"


class TakenPart(Part):
    """Text of one part of a mixture, as it was read."""

    name: str
    """The source, and its location."""
    formats: dict[str, int]
    """Number of files by the format recognised; empty for a source that is not read from files."""
    documents: int
    """Number of texts read."""
    bytes: Annotated[int, Unit("bytes")]
    """UTF-8 bytes of these texts."""
    begins: str
    """The first 200 characters."""

    @property
    def line(self) -> str:
        files = "".join(f"{n:,} {form}, " for form, n in self.formats.items())
        read = f"{self.documents:,} documents, {self.bytes:,} bytes"
        return f"part {self.name}: {files}{read}; it begins: " + self.begins.replace("\n", "⏎")


class TakenText(Part):
    """Text as it was read, before it was split and tokenised."""

    formats: dict[str, int]
    """Number of files by the format recognised; empty for a source that is not read from files."""
    duplicates: int
    """Number of texts skipped as repetitions of an earlier one."""
    empty: int
    """Number of texts skipped as empty."""
    repeated: int = Field(default=0, exclude_if=lambda count: not count)
    """Number of pieces of documents skipped as repetitions of another piece."""
    parts: tuple[TakenPart, ...] = Field(default=(), exclude_if=lambda parts: not parts)
    """Text read from each part of a mixture."""
    begins: str
    """The first 200 characters of the training text."""


class DataDocument(Document):
    """Fields of every corpus."""

    digest: str
    """The name of the corpus's folder."""
    spec: JsonObject
    """Settings of the source."""
    content: str
    """Hash of the contents."""
    vocab_size: int
    """Number of token ids."""


class TextMeta(DataDocument):
    """A text corpus under one tokenizer."""

    kind: Literal["text"] = "text"
    """Marks text, whose tokens are stored: `train.bin`, `tuning.bin`, `judging.bin` and `test.bin`."""
    tokenizer: JsonObject
    """The tokenizer's identity."""
    split: TextSplit
    """Settings of the split of the documents."""
    content_read: str
    """sha256 over the hashes of the documents, in order."""
    unit: Literal["document", "piece"]
    """Unit of the split: `piece` if there were too few documents."""
    documents: PerSplit
    """Number of documents, or pieces."""
    bytes: Annotated[PerSplit, Unit("bytes")]
    """UTF-8 bytes."""
    tokens: Annotated[PerSplit, Unit("tokens")]
    """Number of tokens, end-of-document tokens included."""
    vocab_learnt: int
    """Entries of the tokenizer, possibly fewer than requested."""
    eos: int
    """The end-of-document token."""
    dtype: str
    """numpy dtype of the stored tokens."""
    validation_tokens: int
    """Most tokens read of the test part; half as many of each other held-out part."""
    tokenizers: str
    """Version of the tokenizers library."""
    references: ReferenceLosses
    """Reference losses of simple models."""
    taken: TakenText | None = Field(default=None, exclude_if=is_none)
    """Text as it was read; absent in corpora of versions before December 2026."""

    @property
    def receipt(self) -> Iterator[str]:
        """Summary of the text that was read, line by line."""
        name = f"{self.spec.get('source', 'text')}"
        if self.taken and self.taken.formats:
            yield f"{name}: files read as " + ", ".join(f"{n:,} {form}" for form, n in self.taken.formats.items())
        whole = "documents" if self.unit == "document" else "documents and pieces of documents"
        yield f"{name}: {self.documents.total:,} {whole}, {self.bytes.total:,} bytes"
        if self.taken:
            skipped = f"{self.taken.duplicates:,} duplicates, {self.taken.empty:,} empty documents"
            repeated = f", {self.taken.repeated:,} duplicate pieces" * bool(self.taken.repeated)
            yield f"{name}: skipped {skipped}{repeated}"
            yield from (f"{name}: {part.line}" for part in self.taken.parts)
        yield "tokens: " + ", ".join(f"{split} {count:,}" for split, count in self.tokens.model_dump().items())
        yield f"held out: {self.bytes.held_out / self.bytes.total:.1%} of the bytes"
        if self.taken:
            yield "the training text begins: " + self.taken.begins.replace("\n", "⏎")


class SyntheticMeta(DataDocument):
    """A synthetic task. Its examples follow from the settings and are not stored."""

    kind: Literal["synthetic"] = "synthetic"
    """Marks a synthetic task, whose examples are generated on demand."""
    synthetic: str
    """The task's name."""
    chance: Annotated[float, Unit("share")] | None = Field(default=None, exclude_if=is_none)
    """Accuracy of the best guess without solving the task, over all difficulties; null if there is none."""


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


class SumsDocument(Document):
    """`sums.json`: checksums of the other files of its folder, when they were written."""

    sha256: dict[str, str]
    """SHA-256 by the name of the file."""


class FileStamp(Part):
    """Metadata that shows, without reading a file, whether it has changed."""

    bytes: Bytes
    """Its size."""
    modified: Annotated[int, Unit("ns since 1970")]
    """Time of its last change (`st_ctime`), which no program can set."""


class CheckedDocument(Document):
    """`checked-<machine>.json`: the files that were verified on one machine. A file is read again once its stamp has
    changed."""

    files: dict[str, FileStamp]
    """Stamps by the name of the file."""
