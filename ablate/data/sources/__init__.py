"""Data sources: one file each.

`prose` and `stdlib` are text on every machine, `files` is your own, `hf` streams from the Hugging Face Hub; the others
make tasks (`_synthetic.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

from pydantic import Field, PositiveInt

from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bytes import BytesTokenizer
from ablate.store.documents import TakenPart, TextMeta
from zoo.settings.axis import Choice, Spec

BEGINNING = 200
"""Number of characters that are shown of a text."""
Progress = Callable[[str, float], None]
"""Told the stage (`download`, `train tokenizer` or `read tokenizer`, `tokenise`) and the share of it that is done."""


class DataSource(Spec, ABC):
    """A study's `data`: text, or a synthetic task."""

    of_its_place: ClassVar[tuple[str, ...]] = ()
    """Settings that mean nothing where its `path` is another: layers of a study do not carry them over."""
    source: str
    """Name of the data source: the one that a map's other settings belong to; `data: stdlib` is short for `{source:
    stdlib}`."""

    @abstractmethod
    def misfit(self, context: int) -> str | None:
        """Why models cannot be trained on it at a context; None where they can."""

    def widths(self, context: int) -> tuple[int, ...]:
        """Tokens of the rows that a run trains on, step by step in turn. Every step has batch × context tokens."""
        return (context,)


class TextSource(DataSource):
    """A corpus: documents, how they are split, and how they become tokens."""

    tokenizer: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] = BytesTokenizer()
    """Tokenizer of the text, such as `{kind: bpe, vocab_size: 4096}`; by default every byte of the text (UTF-8) is a
    token."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Share of the bytes held out: documents in the order of their hashes, until they make that share. Half of it
    is the test part, which final losses are of; a quarter compares trials of `tune`, a quarter is for validation on the
    way, `seeds: auto` and searches."""
    validation_tokens: PositiveInt = 131072
    """Most tokens of the test part that a final loss predicts, in windows spread evenly over it; half as many of each
    other part."""

    def misfit(self, context: int) -> str | None:
        if self.validation_tokens >= context:
            return None
        held_out = f"data.validation_tokens ({self.validation_tokens})"
        return f"{context} tokens are more than {held_out}: no window could be validated"

    @abstractmethod
    def documents(self, base: Path) -> Iterator[str]:
        """The documents, always in the same order. Relative paths start from `base`.

        Raises:
            DataError: they cannot be read.
        """

    def pinned(self, prepared: Iterable[TextMeta]) -> Self:
        """With what may change elsewhere as it was when one of these corpora, newest first, was prepared."""
        return self

    def tokenised_by(self, tokenizer: TokenizerSpec) -> Self:
        """The same text, as another tokenizer splits it."""
        return self.model_copy(update={"tokenizer": tokenizer})

    def fetch(self, progress: Progress) -> None:
        """Bring what is elsewhere to this machine, before it is read."""

    def held_out(self, base: Path) -> Iterator[str] | None:
        """Documents that are all held out, or None: then they are chosen among `documents`."""
        return None

    def formats(self, base: Path) -> dict[str, int]:
        """Number of files by the format that was recognised, where it is read from files."""
        return {}

    def parts_taken(self, base: Path) -> tuple[TakenPart, ...]:
        """The part that `documents` reads of each of several sources."""
        return ()

    def fingerprint(self) -> str | None:
        """An identifier of content that is expensive to read; None if it is read and hashed."""
        return None

    def extent(self) -> Extent | None:
        """The result of reading and hashing the text, where it is known beforehand."""
        return None


class Extent(NamedTuple):
    """A text as a survey finds it. content: sha256 over the hashes of its documents, in order. held_out: number of
    documents in the held-out parts."""

    content: str
    held_out: int


def up_to(texts: Iterable[str], limit: int | None) -> Iterator[str]:
    """The first texts, until they have so many bytes (UTF-8); the one that passes the limit is whole."""
    read = 0
    for text in texts:
        yield text
        read += len(text.encode(errors="surrogatepass"))
        if limit is not None and read >= limit:
            return
