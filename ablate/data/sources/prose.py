"""English prose that comes with the package."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypedDict

from pydantic import PositiveInt, model_validator

from ablate.data.sources import Extent, TextSource, up_to

SHIPPED = Path(__file__).parents[1] / "prose"
DOCUMENTS = "documents.jsonl.xz"
PROVENANCE = "books.json"
HASHES = "documents.json"
"""Book, sha256 and size in bytes of every document, and the sha256 of the compressed file that holds them."""


class ProseDocument(TypedDict):
    """One document: a chapter, a tale or a speech."""

    book: str
    text: str


class ProseSource(TextSource):
    """22 MB of English in the public domain: novels, tales, essays, speeches and a little technical writing.

    A document is a chapter, a tale or a speech, in an order that mixes the authors. Whole authors are held out, so no
    book is on both sides: Carroll, Conrad, Eliot, Wells and three of the presidents, 4.6 % of the bytes.
    `ablate/data/prose/books.json` names every book, its year, source and licence.
    """

    source: Literal["prose"] = "prose"
    limit: PositiveInt | None = None
    """Maximum number of bytes to train on, the first documents: a short run need not tokenise everything. The document
    that passes the limit is read whole; the held-out text is the same for every limit."""

    @model_validator(mode="after")
    def _holds_out_what_is_given(self) -> Self:
        if self.validation_fraction != type(self).model_fields["validation_fraction"].default:
            raise ValueError("validation_fraction: prose always holds out the same authors: leave it out")
        return self

    def documents(self, base: Path) -> Iterator[str]:
        return up_to(_texts(held_out=False), self.limit)

    def held_out(self, base: Path) -> Iterator[str] | None:
        return _texts(held_out=True)

    def extent(self) -> Extent | None:
        """Computed from the hashes shipped with the documents, which saves half a second of decompression; None if the
        hashes are missing or belong to another file."""
        documents = _hashed(SHIPPED)
        if documents is None:
            return None
        held_out_books = _books(held_out=True)
        given = {each.hash for each in documents if each.book in held_out_books}
        hashes, read = [each.hash for each in documents if each.hash in given], 0
        for each in documents:
            if each.hash not in given:
                hashes.append(each.hash)
                read += each.bytes
                if self.limit is not None and read >= self.limit:
                    break
        return Extent(hashlib.sha256(bytes.fromhex("".join(hashes))).hexdigest(), len(given))


class _Hashed(NamedTuple):
    """Hash and size of a document."""

    book: str
    hash: str
    bytes: int


@cache
def _hashed(edition: Path) -> tuple[_Hashed, ...] | None:
    """All documents, in order; None if the hashes are missing or not those of the compressed file."""
    file = edition / HASHES
    if not file.is_file():
        return None
    known = json.loads(file.read_text(encoding="utf-8"))
    if known["packed"] != hashlib.sha256((edition / DOCUMENTS).read_bytes()).hexdigest():
        return None
    return tuple(_Hashed(*row) for row in known["documents"])


def hashes_of(packed: bytes) -> str:
    """Content of the file of hashes for a compressed file of documents."""
    rows = [json.loads(line) for line in lzma.decompress(packed).decode().rstrip("\n").split("\n")]
    texts = [(row["book"], row["text"].encode()) for row in rows]
    hashed = [_Hashed(book, hashlib.sha256(utf8).hexdigest(), len(utf8)) for book, utf8 in texts]
    documents = [json.dumps(each, ensure_ascii=False) for each in hashed]
    return f'{{"packed": "{hashlib.sha256(packed).hexdigest()}", "documents": [\n' + ",\n".join(documents) + "\n]}\n"


def _books(held_out: bool) -> set[str]:
    books = json.loads((SHIPPED / PROVENANCE).read_text(encoding="utf-8"))["books"]
    return {book["book"] for book in books if book["held_out"] == held_out}


def _texts(held_out: bool) -> Iterator[str]:
    """The documents of one side of the split, decompressed when the first is needed."""
    wanted = _books(held_out)
    for row in _rows(SHIPPED):
        if row["book"] in wanted:
            yield row["text"]


@cache
def _rows(edition: Path) -> tuple[ProseDocument, ...]:
    """All documents, decompressed once per process: takes a second and 22 MB of memory."""
    packed = (edition / DOCUMENTS).read_bytes()
    return tuple(map(json.loads, lzma.decompress(packed).decode().rstrip("\n").split("\n")))
