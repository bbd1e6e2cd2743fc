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
from store.errors import DataError

DEFAULT_COLUMN = "text"
Paths = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda given: (given,) if isinstance(given, str) else given, json_schema_input_type=str | tuple[str, ...]
    ),
]
"""Globs; a single one needs no brackets."""


class FilesSource(TextSource):
    """Text files, JSON, .csv, .tsv, .parquet, .arrow (as `datasets` saves it) and WebDataset tars; all but .parquet and
    .arrow may be compressed by gzip or zstd.

    JSON (objects on lines, in an array, or concatenated) is recognised by its beginning, whatever the file's name; .csv
    and .tsv by their names. Text is UTF-8, or UTF-16 or UTF-32 with a byte-order mark.

    A text file is a document, as is each row of a table and each sample of a tar. Fewer than 20 documents cannot be
    split by document: without `validation_paths` they are first cut at line ends into pieces of about 8 kB (less if
    that makes fewer than 20), which count as documents. Neighbouring pieces of one text may then fall on both sides of
    the split; `separator` cuts at the boundaries of the text's own parts instead.
    """

    source: Literal["files"] = "files"
    paths: Annotated[Paths, Field(min_length=1, strict=False)]
    """Globs, relative to the study's file; `**` crosses folders, `~` and `$VARIABLES` are expanded. A folder stands for
    all files below it that end in .txt, .md, .jsonl, .ndjson, .parquet, .arrow or .tar, compressed or not, and for
    compressed .json."""
    column: str = DEFAULT_COLUMN
    """Column or key of the text in JSON, .csv, .parquet and .arrow, and in a tar's samples that have no .txt."""
    format: Literal["auto", "text"] = "auto"
    """`text` reads every file as one text, even JSON and tables, such as those among source code."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """String that separates documents within a text; `"\\n\\n"` for one document per paragraph."""
    validation_paths: Annotated[Paths, Field(strict=False)] = ()
    """Held-out files, instead of holding out a share of `paths`; documents in both are held out. Fewer than three
    documents are cut into pieces, since each held-out part needs one."""

    limit: PositiveInt | None = None
    """Maximum number of bytes (UTF-8) read from `paths`, the first documents in the order of the paths: a short run
    need not tokenise a large folder. The document that passes the limit is read whole."""

    def documents(self, base: Path) -> Iterator[str]:
        if self.column != DEFAULT_COLUMN:
            files = matches((*self.paths, *self.validation_paths), base, is_text)
            if self.format == "text" or not any(recognised(path) in COLUMNED for path in files):
                known = "all files are read as text" if self.format == "text" else f"{files[0]} and all others are text"
                raise DataError(f"no file uses the column {self.column!r}: {known}: leave out data.column")
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
