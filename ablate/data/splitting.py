"""Documents, each once, and which of them are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple

from ablate.data.error import DataError
from ablate.data.sources import TextSource
from ablate.store.documents import PerSplit

FEWEST_DOCUMENTS = 20
PIECE_BYTES = 8192

Unit = Literal["document", "piece"]
Split = Literal["train", "validation"]


class TextDocument(NamedTuple):
    """A text as UTF-8, its sha256, and whether its source gave it for validation alone."""

    utf8: bytes
    hash: bytes
    given: bool


@dataclass(frozen=True)
class Survey:
    """What a corpus holds, known from one reading."""

    content: str
    """sha256 over the hashes of the documents, in order."""
    validation: frozenset[bytes]
    """Hashes of the documents that are held out."""
    unit: Unit
    """`document`, or `piece` where there were too few documents to split."""
    documents: PerSplit
    """How many."""
    bytes: PerSplit

    def split_of(self, document: TextDocument) -> Split:
        return "validation" if document.hash in self.validation else "train"


def survey(source: TextSource, base: Path) -> Survey:
    """Reads the corpus once, keeping only hashes and sizes.

    Raises:
        DataError: it cannot be read, or either split would be empty.
    """
    sizes: dict[bytes, int] = {}
    given: set[bytes] = set()
    unit: Unit = "document"
    for unit, document in _units(source, base):  # noqa: B007 (the last one is as good as any)
        sizes[document.hash] = len(document.utf8)
        if document.given:
            given.add(document.hash)
    chosen = source.held_out(base) is None
    validation = _chosen(sizes, source.validation_fraction) if chosen else frozenset(given)
    _check(len(sizes), len(validation))
    held_bytes = sum(sizes[key] for key in validation)
    return Survey(
        content=hashlib.sha256(b"".join(sizes)).hexdigest(),
        unit=unit,
        documents=PerSplit(train=len(sizes) - len(validation), validation=len(validation)),
        bytes=PerSplit(train=sum(sizes.values()) - held_bytes, validation=held_bytes),
        validation=validation,
    )


def documents(source: TextSource, base: Path) -> Iterator[TextDocument]:
    """Every document once, in the source's order, those given for validation first."""
    return (document for _, document in _units(source, base))


def _chosen(sizes: dict[bytes, int], fraction: float) -> frozenset[bytes]:
    """Documents in the order of their hashes, until they make `fraction` of the bytes."""
    wanted = fraction * sum(sizes.values())
    chosen: set[bytes] = set()
    for key in sorted(sizes):
        if wanted <= 0:
            break
        chosen.add(key)
        wanted -= sizes[key]
    return frozenset(chosen)


def _check(documents: int, held_out: int) -> None:
    if documents == 0:
        raise DataError("the data has no text")
    if held_out == 0:
        raise DataError("validation_paths has no text")
    if held_out == documents:
        raise DataError(
            f"no text is left to train on: all {documents} documents are held out"
            " (data cannot be split below one document, and what is also in validation_paths is held out)"
        )


def _units(source: TextSource, base: Path) -> Iterator[tuple[Unit, TextDocument]]:
    held_out = source.held_out(base)
    texts = map(_utf8, source.documents(base))
    if held_out is None:
        return _split_or_cut(_unique(texts, given=False))
    return (("document", document) for document in _both(map(_utf8, held_out), texts))


def _both(held_out: Iterable[bytes], texts: Iterable[bytes]) -> Iterator[TextDocument]:
    seen: set[bytes] = set()
    for document in _unique(held_out, given=True):
        seen.add(document.hash)
        yield document
    yield from (d for d in _unique(texts, given=False) if d.hash not in seen)


def _split_or_cut(whole: Iterator[TextDocument]) -> Iterator[tuple[Unit, TextDocument]]:
    """The documents, or pieces of them where they are too few to be split."""
    first = list(islice(whole, FEWEST_DOCUMENTS))
    if len(first) == FEWEST_DOCUMENTS:
        for document in chain(first, whole):
            yield "document", document
        return
    cut = (piece for document in first for piece in pieces(document.utf8))
    for document in _unique(cut, given=False):
        yield "piece", document


def _unique(texts: Iterable[bytes], given: bool) -> Iterator[TextDocument]:
    """Each text once, empty ones left out."""
    seen: set[bytes] = set()
    for utf8 in texts:
        key = hashlib.sha256(utf8).digest()
        if utf8 and key not in seen:
            seen.add(key)
            yield TextDocument(utf8, key, given)


def pieces(utf8: bytes) -> Iterator[bytes]:
    """Whole lines of at least `PIECE_BYTES` together; the last piece is what is left."""
    start = 0
    while start < len(utf8):
        newline = utf8.find(b"\n", start + PIECE_BYTES - 1)
        end = len(utf8) if newline < 0 else newline + 1
        yield utf8[start:end]
        start = end


def _utf8(text: str) -> bytes:
    """JSON can spell half of a surrogate pair, which is no character: it becomes `?`."""
    return text.encode(errors="replace")
