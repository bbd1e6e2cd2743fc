"""Append-only logs: one JSON object per line, each with the `step` that it is of.

A kill can tear the last line: it is cut on reading, and before anything is appended.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ablate.store.files import StoreError, parsed, replacing

if TYPE_CHECKING:
    import polars

Record = Mapping[str, float | str | None]

TAIL_BYTES = 4096
"""Enough of the end of a log to hold its last record of each kind."""


def append(path: Path, records: Iterable[Record]) -> None:
    """Append a line for each record, all in one write, after cutting a torn one. Numbers that are not finite become
    null."""
    lines = b"".join(json.dumps(_strict(record), allow_nan=False).encode() + b"\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        _cut_torn_line(file)
        file.write(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """All records in the order written; none where there is no log. StoreError for a broken line in the middle."""
    return [json.loads(line) for line in _lines(path)]


def frame(path: Path, types: Mapping[str, type], whole: bool) -> polars.DataFrame:
    """Columns of these types first; for the `whole` log then those that are not known, which are numbers.

    A log is parsed at once, far faster than line by line; `read` is for what is not all whole lines.
    """
    import polars as pl  # noqa: PLC0415 (slow to import; most users only write)

    if not path.exists():
        return pl.DataFrame(schema=dict(types))
    content = path.read_bytes()
    lines = content[: content.rfind(b"\n") + 1]
    try:
        if not whole:
            return pl.read_ndjson(lines, schema=pl.Schema(types))
        found = pl.read_ndjson(lines, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        records = read(path)
        extra = sorted({key for record in records for key in record} - types.keys()) if whole else []
        return pl.DataFrame(records, schema={**types, **dict.fromkeys(extra, float)}, orient="row", strict=False)
    extra = sorted(set(found.columns) - types.keys())
    present = set(found.columns)
    return found.select(
        (pl.col(name) if name in present else pl.lit(None).alias(name)).cast(types.get(name, float), strict=False)
        for name in (*types, *extra)
    )


def last(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The last record that is wanted, from the end of the file alone; None where there is none."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    records = (parsed(line) for line in reversed(lines))
    return next((r for r in records if isinstance(r, dict) and wanted(r)), None)


def truncate(path: Path, step: int) -> None:
    """Drop the records after `step`."""
    kept = [line for line in _lines(path) if json.loads(line)["step"] <= step]
    with replacing(path) as temporary:
        temporary.write_bytes(b"".join(line + b"\n" for line in kept))


def _lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(lines, start=1):
        if not isinstance(parsed(line), dict):
            if number == len(lines):
                return lines[:-1]
            raise StoreError(f"{path}:{number}: not a record of a log")
    return lines


def _strict(record: Record) -> dict[str, float | str | None]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }


def _cut_torn_line(file: IO[bytes]) -> None:
    """Truncate to the last line end. `file` is open for reading and appending."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
