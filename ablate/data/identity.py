"""Identity of a text corpus, found without preparing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ablate.data.sources import Extent, TextSource
from ablate.data.splitting import survey
from store.documents import TextSplit
from zoo.settings.identity import digest_of, identity_of

SCHEMA = 2
DIGITS = 32


@dataclass(frozen=True)
class DataIdentity:
    """digest: name of the prepared corpus. Equal text, tokenizer and split give equal digests, whatever their paths."""

    digest: str
    vocab_size: int
    content: str
    """Hash of the content."""
    unread: str = ""
    """Why the corpus is unknown, if the hub could not be reached and a plan goes on without it; else empty."""

    @classmethod
    def open(cls, vocab_size: int, reason: str) -> Self:
        """The identity of a text that could not be read; it matches no stored run."""
        return cls("unread", vocab_size, "", reason)


def identify_text(spec: TextSource, base: Path = Path()) -> DataIdentity:
    """Read and hash the text; neither tokenise nor write.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    content, held_out = _extent(spec, base)
    split = split_of(spec, base, held_out)
    tokenizer = spec.tokenizer.identity(base)
    known = {"schema": SCHEMA, "content": content, "tokenizer": tokenizer, "split": identity_of(split)}
    return DataIdentity(digest_of(known, DIGITS), spec.tokenizer.vocabulary(base), content)


def _extent(spec: TextSource, base: Path) -> Extent:
    if fingerprint := spec.fingerprint():
        return Extent(fingerprint, 0)
    if known := spec.extent():
        return known
    found = survey(spec, base)
    return Extent(found.content, found.documents.held_out)


def split_of(spec: TextSource, base: Path, held_out: int) -> TextSplit:
    """The split's settings. held_out: number of documents in the held-out parts."""
    if spec.held_out(base) is None:
        return TextSplit(fraction=spec.validation_fraction, tokens=spec.validation_tokens)
    return TextSplit(fraction=None, tokens=spec.validation_tokens, given=held_out)
