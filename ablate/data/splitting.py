"""Deduplicate documents and split them into train and held-out parts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ablate.data.sources import TextSource
from store.documents import HeldOutPart, PerSplit
from store.errors import DataError

FEWEST_DOCUMENTS = 20
PIECE_BYTES = 8192
MOST_HELD_OUT = 0.5
"""Large documents are cut if more of the bytes than this share, and than twice `validation_fraction`, would be held out
otherwise. Up to there a book stays whole, on one side of the split."""
PIECES_OF_A_PART = 4
SMALLEST_CUT = 256
ENDS = (re.compile(rb"\r?\n|\r"), re.compile(rb"[.!?]['\")\]]*\s+|\xe3\x80\x82"), re.compile(rb"\s+"))
"""Ends of lines, sentences and words."""
SHARES: dict[HeldOutPart, int] = {"test": 2, "judging": 1, "tuning": 1}
"""Relative shares of the held-out parts. Verdicts compare losses on the test part."""

Unit = Literal["document", "piece"]
Split = Literal["train", HeldOutPart]
SPLITS: tuple[Split, ...] = ("train", *get_args(HeldOutPart))


class TextDocument(NamedTuple):
    """A text as UTF-8, its sha256, and whether its source holds it out (`TextSource.held_out`)."""

    utf8: bytes
    hash: bytes
    given: bool


@dataclass(frozen=True)
class Survey:
    """Sizes and held-out documents of a corpus."""

    content: str
    """sha256 over the hashes of the documents, in order."""
    held_out: Mapping[bytes, HeldOutPart]
    """Held-out part of each held-out document, keyed by the document's hash."""
    unit: Unit
    """`piece` if any document was cut (too few documents to split, or some too large); else `document`."""
    largest: int | None
    """Size in bytes above which documents were cut; None if none was cut for its size."""
    documents: PerSplit
    """Number of documents in each split."""
    bytes: PerSplit
    duplicates: int
    """Number of texts left out as copies of earlier ones."""
    empty: int
    """Number of empty texts left out."""
    repeated: int
    """Number of pieces left out as copies of earlier pieces."""

    def split_of(self, document: TextDocument) -> Split:
        return self.held_out.get(document.hash, "train")


def survey(source: TextSource, base: Path) -> Survey:
    """Read the corpus, keeping only hashes and sizes. If the held-out share comes out far from `validation_fraction`,
    read it again and cut the large documents.

    Raises:
        DataError: the text cannot be read, or a split would be empty.
    """
    chosen = source.held_out(base) is None
    found = _survey(source, base, None, chosen)
    # Cut large documents if held-out parts are empty, or hold all or most of the text.
    much = chosen and found.bytes.held_out > max(MOST_HELD_OUT, 2 * source.validation_fraction) * found.bytes.total
    if much or found.documents.train == 0 or len(found.held_out) < len(SHARES):
        found = _survey(source, base, _largest(found.bytes.total, source.validation_fraction), chosen)
    documents, held_out = found.documents.total, len(found.held_out)
    if documents == 0:
        raise DataError("the data has no text")
    if held_out == 0:
        raise DataError("validation_paths has no text")
    if held_out == documents:
        again = f", and {found.repeated:,} repeated pieces are left out" * bool(found.repeated)
        raise DataError(
            f"no text is left to train on: all {documents} documents are held out (at least one for each of"
            f" {len(SHARES)} held-out parts, and all that are also in validation_paths){again}: add text"
        )
    if held_out < len(SHARES) and not chosen:
        raise DataError(
            f"validation_paths has {held_out} documents, but {', '.join(SHARES)} need one each: add lines or files"
        )
    return found


def _survey(source: TextSource, base: Path, largest: int | None, chosen: bool) -> Survey:
    sizes: dict[bytes, int] = {}
    given: set[bytes] = set()
    tally = _Tally()
    unit: Unit = "document"
    for each, document in _units(source, base, largest, tally):
        unit = "piece" if each == "piece" else unit
        sizes[document.hash] = len(document.utf8)
        if document.given:
            given.add(document.hash)
    candidates, share = (sizes, source.validation_fraction) if chosen else ({key: sizes[key] for key in given}, 1.0)
    held_out = _parts(candidates, share)
    splits: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for key, size in sizes.items():
        splits[held_out.get(key, "train")].append(size)
    return Survey(
        content=hashlib.sha256(b"".join(sizes)).hexdigest(),
        unit=unit,
        largest=largest,
        documents=PerSplit(**{split: len(each) for split, each in splits.items()}),
        bytes=PerSplit(**{split: sum(each) for split, each in splits.items()}),
        held_out=held_out,
        duplicates=tally["duplicate"],
        empty=tally["empty"],
        repeated=tally["repeated"],
    )


def _largest(total: int, fraction: float) -> int:
    """Size in bytes above which documents are cut, so that each held-out part has several pieces of a few lines."""
    quarter = int(fraction * total / sum(SHARES.values()))
    return max(SMALLEST_CUT, quarter // PIECES_OF_A_PART, min(PIECE_BYTES, total // FEWEST_DOCUMENTS))


def documents(source: TextSource, base: Path, largest: int | None) -> Iterator[TextDocument]:
    """Every document once, in the source's order; `source.held_out` comes first. largest: `Survey.largest`."""
    return (document for _, document in _units(source, base, largest, _Tally()))


def _parts(sizes: Mapping[bytes, int], fraction: float) -> dict[bytes, HeldOutPart]:
    """Hold out documents in the order of their hashes, until they make `fraction` of the bytes and no part is empty.

    Each goes to the part that is filled least, relative to its share. A larger fraction adds documents and moves none.
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


_Tally = Counter[str]
"""Number of texts left out, by reason: `duplicate`, `empty`, `repeated`."""


def _units(source: TextSource, base: Path, largest: int | None, tally: _Tally) -> Iterator[tuple[Unit, TextDocument]]:
    held_out = source.held_out(base)
    texts = map(_utf8, source.documents(base))
    if held_out is None:
        units = _split_or_cut(_unique(texts, False, tally), FEWEST_DOCUMENTS, tally)
    else:
        units = _both(map(_utf8, held_out), texts, tally)
    return units if largest is None else _cut_above(largest, units, tally)


def _cut_above(
    largest: int, units: Iterator[tuple[Unit, TextDocument]], tally: _Tally
) -> Iterator[tuple[Unit, TextDocument]]:
    """The same documents, with those above `largest` bytes cut into pieces; repeated texts are tallied and left out."""
    seen: set[bytes] = set()
    for unit, document in units:
        whole = len(document.utf8) <= largest
        for utf8 in (document.utf8,) if whole else cut(document.utf8, largest):
            key = hashlib.sha256(utf8).digest()
            if key in seen:
                tally["repeated"] += 1
            else:
                seen.add(key)
                yield unit if whole else "piece", TextDocument(utf8, key, document.given)


def _both(held_out: Iterable[bytes], texts: Iterable[bytes], tally: _Tally) -> Iterator[tuple[Unit, TextDocument]]:
    given = list(_unique(held_out, True, tally))
    unit: Unit = "document"
    seen = {document.hash for document in given}  # hashes of whole documents, even if they are cut below
    for unit, document in _split_or_cut(iter(given), len(SHARES), tally):
        seen.add(document.hash)
        yield unit, document
    for document in _unique(texts, False, tally):
        if document.hash in seen:
            tally["duplicate"] += 1
        else:
            yield unit, document


def _split_or_cut(whole: Iterator[TextDocument], fewest: int, tally: _Tally) -> Iterator[tuple[Unit, TextDocument]]:
    """The documents, or pieces of them if there are fewer than `fewest`."""
    first = list(islice(whole, fewest))
    if len(first) == fewest:
        for document in chain(first, whole):
            yield "document", document
        return
    size = min(PIECE_BYTES, max(1, sum(len(document.utf8) for document in first) // FEWEST_DOCUMENTS))
    cut = (piece for document in first for piece in pieces(document.utf8, size))
    repeated = _Tally()
    for document in _unique(cut, any(document.given for document in first), repeated):
        yield "piece", document
    tally["repeated"] += repeated["duplicate"]


def _unique(texts: Iterable[bytes], given: bool, tally: _Tally) -> Iterator[TextDocument]:
    """Each non-empty text once; empty texts and duplicates are tallied and left out."""
    seen: set[bytes] = set()
    for utf8 in texts:
        key = hashlib.sha256(utf8).digest()
        if not utf8 or key in seen:
            tally["duplicate" if utf8 else "empty"] += 1
        else:
            seen.add(key)
            yield TextDocument(utf8, key, given)


def pieces(utf8: bytes, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Pieces of whole lines, each of at least `size` bytes; the last may be shorter."""
    start = 0
    while start < len(utf8):
        newline = utf8.find(b"\n", start + size - 1)
        end = len(utf8) if newline < 0 else newline + 1
        yield utf8[start:end]
        start = end


def cut(utf8: bytes, most: int) -> Iterator[bytes]:
    """Pieces of most/2 to `most` bytes; the last may be shorter. Each ends at the last line end in that range; without
    one, at the last end of a sentence, of a word, or of a character."""
    start = 0
    while len(utf8) - start > most:
        half, end = start + most // 2, start + most
        found = (max((m.end() for m in mark.finditer(utf8, half, end)), default=0) for mark in ENDS)
        after = next((place for place in found if place), end)
        while utf8[after] & 0xC0 == 0x80:  # inside a character
            after -= 1
        yield utf8[start:after]
        start = after
    yield utf8[start:]


def _utf8(text: str) -> bytes:
    """Encode as UTF-8. A lone surrogate, which JSON can spell, becomes `?`."""
    return text.encode(errors="replace")
