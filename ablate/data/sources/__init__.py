"""Data sources: one file each.

Text: `prose` and `stdlib` exist on every machine, `files` and `tokens` read your own, `hf` streams from the Hugging
Face Hub, `mixture` combines them. The others are synthetic tasks (`_synthetic.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self, TypeAlias

from pydantic import Field, PositiveInt, TypeAdapter

from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bytes import BytesTokenizer
from store.documents import TakenPart, TextMeta
from zoo.settings.axis import Choice, Spec

BEGINNING = 200
"""Number of characters in a text's excerpt."""
Progress = Callable[[str, float], None]
"""Callback (stage, share done): `download`, `train tokenizer` or `read tokenizer`, `tokenise`; 0 to 1."""


class DataSource(Spec, ABC):
    """A study's `data`: text, or a synthetic task."""

    of_its_place: ClassVar[tuple[str, ...]] = ()
    """Settings that are meaningless under another `path`: a layer of a study that changes `path` resets them."""
    source: str
    """Name of the data source, which determines the other settings; `data: stdlib` is short for `{source: stdlib}`."""

    @abstractmethod
    def misfit(self, context: int) -> str | None:
        """Why the data cannot be used at a context length; None if it can."""

    def widths(self, context: int) -> tuple[int, ...]:
        """Row widths in tokens; training steps cycle through them. Every step has batch × context tokens."""
        return (context,)


class TextSource(DataSource):
    """A text corpus: its documents, their split, and the tokenizer."""

    tokenizer: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] = BytesTokenizer()
    """Tokenizer of the text, such as `{kind: bpe, vocab_size: 4096}`; by default every byte of the text (UTF-8) is a
    token."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the bytes held out: documents in the order of their hashes, until they make that share. Half of it is
    the test part, for final losses; a quarter compares trials of `tune`; a quarter serves validation during training,
    `seeds: auto` and searches."""
    validation_tokens: PositiveInt = 131072
    """Maximum number of tokens of the test part that a final loss predicts, in windows spread evenly over it; half as
    many for each other held-out part."""

    def misfit(self, context: int) -> str | None:
        if self.validation_tokens >= context:
            return None
        held_out = f"data.validation_tokens ({self.validation_tokens})"
        return f"{context} tokens are more than {held_out}: no window could be validated"

    @abstractmethod
    def documents(self, base: Path) -> Iterator[str]:
        """The documents, in a deterministic order. Relative paths start from `base`.

        Raises:
            DataError: a document cannot be read.
        """

    def pinned(self, prepared: Iterable[TextMeta]) -> Self:
        """A copy whose remote revisions are fixed to those of a matching prepared corpus (given newest first)."""
        return self

    def tokenised_by(self, tokenizer: TokenizerSpec) -> Self:
        """The same text under another tokenizer."""
        return self.model_copy(update={"tokenizer": tokenizer})

    def fetch(self, progress: Progress) -> None:
        """Download remote data before it is read."""

    def held_out(self, base: Path) -> Iterator[str] | None:
        """The held-out documents; None if they are to be chosen among `documents`."""
        return None

    def formats(self, base: Path) -> dict[str, int]:
        """Number of files, keyed by their recognised format; empty for sources that are not files."""
        return {}

    def parts_taken(self, base: Path) -> tuple[TakenPart, ...]:
        """Amounts that `documents` reads from each part of a mixture."""
        return ()

    def fingerprint(self) -> str | None:
        """Identifier of content that is expensive to read; None if the text is read and hashed."""
        return None

    def extent(self) -> Extent | None:
        """The result of reading and hashing the text, if known beforehand."""
        return None


class Extent(NamedTuple):
    """Summary of a text. content: sha256 over the hashes of its documents, in order. held_out: number of documents in
    the held-out parts."""

    content: str
    held_out: int


def up_to(texts: Iterable[str], limit: int | None) -> Iterator[str]:
    """The first texts, until they total `limit` bytes (UTF-8); the last one is whole. None: no limit."""
    read = 0
    for text in texts:
        yield text
        read += len(text.encode(errors="surrogatepass"))
        if limit is not None and read >= limit:
            return


DataSpec: TypeAlias = Annotated[DataSource, Choice("ablate.data.sources", tag="source")]
"""A map with `source`, or the bare name of a source (`data: stdlib`)."""


def parse(value: object) -> DataSource:
    """Parse a data spec from plain values.

    Raises:
        pydantic.ValidationError: names the path of every mistake.
    """
    adapter: TypeAdapter[DataSource] = TypeAdapter(DataSpec)
    return adapter.validate_python(value)
