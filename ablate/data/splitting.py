"""Documents, each once, and which of them are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ablate.data.sources import TextSource
from ablate.errors import DataError
from ablate.store.documents import HeldOutPart, PerSplit

FEWEST_DOCUMENTS = 20
PIECE_BYTES = 8192
SHARES: dict[HeldOutPart, int] = {"test": 2, "judging": 1, "tuning": 1}
"""The parts of held-out text, with their shares. Verdicts compare losses on the test part."""

Unit = Literal["document", "piece"]
Split = Literal["train", HeldOutPart]
SPLITS: tuple[Split, ...] = ("train", *get_args(HeldOutPart))


class TextDocument(NamedTuple):
    """A text as UTF-8, its sha256, and whether its source gave it to be held out."""

    utf8: bytes
    hash: bytes
    given: bool


@dataclass(frozen=True)
class Survey:
    """Sizes of a corpus, from one reading."""

    content: str
    """sha256 over the hashes of the documents, in order."""
    held_out: Mapping[bytes, HeldOutPart]
    """Hashes of the documents that are held out, and the part that each is in."""
    unit: Unit
    """`document`, or `piece` where there were too few documents to split."""
    documents: PerSplit
    """Number of documents."""
    bytes: PerSplit

    def split_of(self, document: TextDocument) -> Split:
        return self.held_out.get(document.hash, "train")


def survey(source: TextSource, base: Path) -> Survey:
    """Reads the corpus once, keeping only hashes and sizes.

    Raises:
        DataError: it cannot be read, or a split would be empty.
    """
    sizes: dict[bytes, int] = {}
    given: set[bytes] = set()
    unit: Unit = "document"
    for unit, document in _units(source, base):  # noqa: B007 (the last one is as good as any)
        sizes[document.hash] = len(document.utf8)
        if document.given:
            given.add(document.hash)
    chosen = source.held_out(base) is None
    candidates, share = (sizes, source.validation_fraction) if chosen else ({key: sizes[key] for key in given}, 1.0)
    held_out = _parts(candidates, share)
    _check(len(sizes), len(held_out), chosen)
    splits: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for key, size in sizes.items():
        splits[held_out.get(key, "train")].append(size)
    return Survey(
        content=hashlib.sha256(b"".join(sizes)).hexdigest(),
        unit=unit,
        documents=PerSplit(**{split: len(each) for split, each in splits.items()}),
        bytes=PerSplit(**{split: sum(each) for split, each in splits.items()}),
        held_out=held_out,
    )


def documents(source: TextSource, base: Path) -> Iterator[TextDocument]:
    """Every document once, in the source's order, those given to be held out first."""
    return (document for _, document in _units(source, base))


def _parts(sizes: Mapping[bytes, int], fraction: float) -> dict[bytes, HeldOutPart]:
    """Documents in the order of their hashes, until they make `fraction` of the bytes and no part is empty.

    Each goes to the part that lacks most of its share, so that a larger fraction adds documents and moves none.
    """
    wanted = fraction * sum(sizes.values())
    filled: dict[HeldOutPart, int] = dict.fromkeys(SHARES, 0)
    found: dict[bytes, HeldOutPart] = {}
    for key in sorted(sizes):
        if sum(filled.values()) >= wanted and all(filled.values()):
            break
        part = min(SHARES, key=lambda name: filled[name] / SHARES[name])
        found[key] = part
        filled[part] += sizes[key]
    return found


def _check(documents: int, held_out: int, chosen: bool) -> None:
    if documents == 0:
        raise DataError("the data has no text")
    if held_out == 0:
        raise DataError("validation_paths has no text")
    if held_out == documents:
        raise DataError(
            f"no text is left to train on: all {documents} documents are held out (at least {len(SHARES)} are, one for"
            " each held-out part, and all that is also in validation_paths): add text"
        )
    if held_out < len(SHARES) and not chosen:
        raise DataError(
            f"validation_paths has {held_out} documents, and {', '.join(SHARES)} need one each: add lines or files"
        )


def _units(source: TextSource, base: Path) -> Iterator[tuple[Unit, TextDocument]]:
    held_out = source.held_out(base)
    texts = map(_utf8, source.documents(base))
    if held_out is None:
        return _split_or_cut(_unique(texts, given=False), FEWEST_DOCUMENTS)
    return _both(map(_utf8, held_out), texts)


def _both(held_out: Iterable[bytes], texts: Iterable[bytes]) -> Iterator[tuple[Unit, TextDocument]]:
    given = list(_unique(held_out, given=True))
    unit: Unit = "document"
    seen = {document.hash for document in given}  # whole, also where they are cut
    for unit, document in _split_or_cut(iter(given), len(SHARES)):
        seen.add(document.hash)
        yield unit, document
    yield from ((unit, d) for d in _unique(texts, given=False) if d.hash not in seen)


def _split_or_cut(whole: Iterator[TextDocument], fewest: int) -> Iterator[tuple[Unit, TextDocument]]:
    """The documents, or pieces of them where there are not the `fewest` that can be split."""
    first = list(islice(whole, fewest))
    if len(first) == fewest:
        for document in chain(first, whole):
            yield "document", document
        return
    size = min(PIECE_BYTES, max(1, sum(len(document.utf8) for document in first) // FEWEST_DOCUMENTS))
    cut = (piece for document in first for piece in pieces(document.utf8, size))
    for document in _unique(cut, given=any(document.given for document in first)):
        yield "piece", document


def _unique(texts: Iterable[bytes], given: bool) -> Iterator[TextDocument]:
    """Each text once, empty ones left out."""
    seen: set[bytes] = set()
    for utf8 in texts:
        key = hashlib.sha256(utf8).digest()
        if utf8 and key not in seen:
            seen.add(key)
            yield TextDocument(utf8, key, given)


def pieces(utf8: bytes, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Whole lines of at least `size` bytes together; the last piece is what is left."""
    start = 0
    while start < len(utf8):
        newline = utf8.find(b"\n", start + size - 1)
        end = len(utf8) if newline < 0 else newline + 1
        yield utf8[start:end]
        start = end


def _utf8(text: str) -> bytes:
    """JSON can spell half of a surrogate pair, which is no character: it becomes `?`."""
    return text.encode(errors="replace")
