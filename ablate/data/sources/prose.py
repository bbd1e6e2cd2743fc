"""English prose that comes with the package."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, Self, TypedDict

from pydantic import PositiveInt, model_validator

from ablate.data.sources import TextSource, up_to

SHIPPED = resources.files("ablate.data").joinpath("prose")
DOCUMENTS = "documents.jsonl.xz"
PROVENANCE = "books.json"


class Row(TypedDict):
    """One document: a chapter, a tale or a speech."""

    book: str
    text: str


class ProseSource(TextSource):
    """22 MB of English in the public domain: novels, tales, essays, speeches and a little technical writing.

    A document is a chapter, a tale or a speech, in an order that mixes the authors. What is held out is whole authors,
    so no book is on both sides: Carroll, Conrad, Eliot, Wells and three of the presidents, 4.6 % of the bytes.
    `ablate/data/prose/books.json` names every book, its year, source and licence.
    """

    source: Literal["prose"] = "prose"
    limit: PositiveInt | None = None
    """At most so many bytes to train on, the first documents: a short run need not tokenise everything. The document
    that passes the limit is read whole; held-out text is the same for every limit."""

    @model_validator(mode="after")
    def _holds_out_what_is_given(self) -> Self:
        if self.validation_fraction != type(self).model_fields["validation_fraction"].default:
            raise ValueError("validation_fraction: prose holds out authors that were chosen for it: leave it out")
        return self

    def documents(self, base: Path) -> Iterator[str]:
        return up_to(_texts(held_out=False), self.limit)

    def held_out(self, base: Path) -> Iterator[str] | None:
        return _texts(held_out=True)


def _texts(held_out: bool) -> Iterator[str]:
    books = json.loads(SHIPPED.joinpath(PROVENANCE).read_text(encoding="utf-8"))["books"]
    wanted = {book["book"] for book in books if book["held_out"] == held_out}
    return (row["text"] for row in _rows() if row["book"] in wanted)


@cache
def _rows() -> tuple[Row, ...]:
    """All documents, unpacked once in a process: a second's work, 22 MB of memory."""
    packed = SHIPPED.joinpath(DOCUMENTS).read_bytes()
    return tuple(map(json.loads, lzma.decompress(packed).decode().rstrip("\n").split("\n")))
