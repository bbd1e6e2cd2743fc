"""Files of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from ablate.data.paths import matches
from ablate.data.sources import TextSource, up_to
from ablate.data.sources._readers import COLUMNED, is_text, read, recognised
from ablate.errors import DataError

DEFAULT_COLUMN = "text"
Paths = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""One path may be written without brackets."""


class FilesSource(TextSource):
    """Text files, JSON, .csv, .parquet and tars of WebDataset, plain or packed by gzip or zstd.

    What a file begins with tells text from JSON (objects on lines, in an array, or one after the other), whatever its
    name; .csv and .tsv are known by their names. Text is UTF-8, or UTF-16 with a byte-order mark.

    A row is a document, as is a sample of a tar, and a text file is one. Fewer than 20 documents cannot be split by
    document: without `validation_paths` they are first cut at line ends into pieces of about 8 kB (less where that
    makes fewer than 20), and the pieces count as documents
    (so that neighbouring pieces of one text may fall on both sides; `separator` cuts where the text's own parts end).
    """

    source: Literal["files"] = "files"
    paths: Annotated[Paths, Field(min_length=1, strict=False)]
    """Globs, relative to the study's file; `**` crosses folders, `~` and `$VARIABLES` are expanded. A folder stands for
    all files below it that end in .txt, .md, .jsonl, .ndjson, .parquet or .tar, packed or not, and for packed .json."""
    column: str = DEFAULT_COLUMN
    """Where JSON, .csv and .parquet keep the text, and .json of a tar, where a sample has no .txt."""
    format: Literal["auto", "text"] = "auto"
    """`text` takes every file as one text, also one that is JSON or a table, such as those among sources of code."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Cuts every text into documents where this stands between them; `"\\n\\n"` for one per paragraph."""
    validation_paths: Annotated[Paths, Field(strict=False)] = ()
    """Held-out files, in place of holding out a share of `paths`; what is in both is held out. Fewer than three
    documents are cut into pieces, since each held-out part needs one."""

    limit: PositiveInt | None = None
    """At most so many bytes of `paths` are read (UTF-8), the first documents in the order of the paths: a short run
    need not tokenise a large folder. The document that passes the limit is read whole."""

    def documents(self, base: Path) -> Iterator[str]:
        self._check_column(base)
        yield from up_to(self._read(self.paths, base), self.limit)

    def held_out(self, base: Path) -> Iterator[str] | None:
        return self._read(self.validation_paths, base) if self.validation_paths else None

    def formats(self, base: Path) -> dict[str, int]:
        files = matches((*self.paths, *self.validation_paths), base, is_text)
        return Counter("text" if self.format == "text" else recognised(path) for path in files)

    def _read(self, patterns: tuple[str, ...], base: Path) -> Iterator[str]:
        for path in matches(patterns, base, is_text):
            for text in read(path, self.column, "text" if self.format == "text" else None):
                yield from text.split(self.separator) if self.separator else (text,)

    def _check_column(self, base: Path) -> None:
        """Raise DataError for a column that is set and that no file has."""
        if self.column == DEFAULT_COLUMN:
            return
        files = matches((*self.paths, *self.validation_paths), base, is_text)
        if self.format == "text" or not any(recognised(path) in COLUMNED for path in files):
            known = "all files are read as text" if self.format == "text" else f"{files[0]} and all others are text"
            raise DataError(f"column {self.column!r} is used by no file: {known}: leave data.column out")
