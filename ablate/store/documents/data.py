"""`data/<digest>/meta.json`: what a prepared corpus is. Text and synthetic tasks have two shapes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.store.documents._document import Document, JsonObject, Part, Unit, is_none


class PerSplit(Part):
    """A number for each split."""

    train: int
    """What is trained on."""
    validation: int
    """What is held out."""

    @property
    def total(self) -> int:
        return self.train + self.validation


class TextSplit(Part):
    """How documents were split."""

    fraction: Annotated[float, Unit("share")] | None
    """Of the bytes that are held out; null where the held-out documents were given."""
    tokens: int
    """At most so many held-out tokens validate."""
    given: int | None = Field(default=None, exclude_if=is_none)
    """How many held-out documents were given."""


class DataDocument(Document):
    """What every corpus says of itself."""

    digest: str
    """The name of its folder."""
    spec: JsonObject
    """The settings of its source."""
    content: str
    """Hash of what it holds."""
    vocab_size: int
    """Token ids that models must know."""


class TextMeta(DataDocument):
    """A text corpus under one tokenizer."""

    kind: Literal["text"] = "text"
    """Text is stored, in `train.bin` and `validation.bin`."""
    tokenizer: JsonObject
    """The tokenizer's identity."""
    split: TextSplit
    """How documents were split."""
    content_read: str
    """sha256 over the hashes of the documents, in order."""
    unit: Literal["document", "piece"]
    """`piece` where there were too few documents to split."""
    documents: PerSplit
    """Documents, or pieces."""
    bytes: Annotated[PerSplit, Unit("bytes")]
    """Of UTF-8."""
    tokens: Annotated[PerSplit, Unit("tokens")]
    """With the tokens that end documents."""
    vocab_learnt: int
    """Entries of the tokenizer, which may be fewer than were asked for."""
    eos: int
    """The token that ends a document."""
    dtype: str
    """numpy's name of the type in which tokens are stored."""
    validation_tokens: int
    """At most so many held-out tokens validate."""
    tokenizers: str
    """Version of the tokenizers library."""


class SyntheticMeta(DataDocument):
    """A synthetic task: its examples follow from the settings, and nothing else is stored."""

    kind: Literal["synthetic"] = "synthetic"
    """Examples are drawn when they are needed."""
    synthetic: str
    """The task's name."""
