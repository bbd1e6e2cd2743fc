"""Append-only logs: one JSON object per line.

A kill can tear the last line: it is cut on reading, and before anything is appended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import IO, TYPE_CHECKING, Generic, TypeVar, get_args

from pydantic import ValidationError

from ablate.store import jsonfile
from ablate.store.documents import MetricsRecord, Part, ProbeRecord
from ablate.store.files import pass_fence, replacing

if TYPE_CHECKING:
    import polars

Record = TypeVar("Record", MetricsRecord, ProbeRecord)
Line = TypeVar("Line", bound=Part)

TAIL_BYTES = 4096
"""Enough of the end of a log to hold its last record of each kind."""


@dataclass(frozen=True)
class Lines(Generic[Line]):
    """A log and the model of its lines. `remedy` says what to do about a line that does not fit: StoreError has it."""

    path: Path
    model: type[Line]
    remedy: str

    def append(self, records: Iterable[Line]) -> None:
        """Append a line for each record, all in one write, after cutting a torn one."""
        lines = b"".join(record.model_dump_json(exclude_unset=True).encode() + b"\n" for record in records)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as file:
            pass_fence(self.path)  # after opening: whoever takes a run over replaces the file
            _cut_torn_line(file)
            file.write(lines)

    def records(self) -> Iterator[Line]:
        """In the order written. Raises StoreError."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        if lines and not jsonfile.is_object(lines[-1]):
            lines.pop()
        for number, line in enumerate(lines, start=1):
            yield jsonfile.record(line, self.model, f"{self.path}:{number}", self.remedy)


class Log(Lines[Record]):
    """One whose lines each have the `step` that they are of."""

    def frame(self, only: Collection[str] = ()) -> polars.DataFrame:
        """The records in the order written, with nulls for what one lacks. `only` these columns, much faster."""
        return together([self], only)[0]

    def slowly(self, types: Mapping[str, type]) -> polars.DataFrame:
        """Line by line: the last may be torn; any other that does not fit is a StoreError."""
        import polars as pl  # noqa: PLC0415 (slow to import; most users only write)

        records = [record.model_dump() for record in self.records()]
        return pl.DataFrame(records, schema=types, orient="row")

    def last(self, wanted: Callable[[Record], bool]) -> Record | None:
        """The last record that is wanted, from the end of the file alone; None where there is none."""
        if not self.path.exists():
            return None
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
        records = (self._record_or_none(line) for line in reversed(lines))
        return next((record for record in records if record is not None and wanted(record)), None)

    def truncate(self, step: int) -> None:
        """Drop the records after `step`."""
        kept = [record for record in self.records() if record.step <= step]
        with replacing(self.path) as temporary:
            temporary.touch()
            Log(temporary, self.model, self.remedy).append(kept)

    def _record_or_none(self, line: bytes) -> Record | None:
        """None for the end of a line that is cut off."""
        try:
            return self.model.model_validate_json(line)
        except ValidationError:
            return None


def together(logs: Sequence[Log[Record]], only: Collection[str] = ()) -> tuple[polars.DataFrame, list[int]]:
    """The records of logs of one kind below each other, with nulls for what one lacks, and how many each log has."""
    import polars as pl  # noqa: PLC0415 (as above)

    if not logs:
        raise ValueError("no logs, and so no columns")
    model = logs[0].model
    known = _columns(model)
    types = {name: known[name] for name in only or known}
    contents = [log.path.read_bytes() if log.path.exists() else b"" for log in logs]
    whole = [content[: content.rfind(b"\n") + 1] for content in contents]
    counts = [content.count(b"\n") for content in whole]
    try:
        # Parsed at once: far faster than log by log, which is far faster than line by line.
        found = pl.read_ndjson(b"".join(whole), schema=pl.Schema(types)) if any(whole) else pl.DataFrame(schema=types)
    except pl.exceptions.PolarsError:
        found = None
    required = _required(model) & types.keys()
    if found is None or found.height != sum(counts) or any(found[name].null_count() for name in required):
        frames = [log.slowly(types) for log in logs]
        return pl.concat(frames), [frame.height for frame in frames]
    return found, counts


def _columns(model: type[MetricsRecord] | type[ProbeRecord]) -> dict[str, type]:
    return {
        name: next(kind for kind in (int, float, str) if kind in (field.annotation, *get_args(field.annotation)))
        for name, field in model.model_fields.items()
    }


def _required(model: type[MetricsRecord] | type[ProbeRecord]) -> set[str]:
    """Columns without nulls."""
    fields = model.model_fields.items()
    return {name for name, each in fields if each.is_required() and NoneType not in get_args(each.annotation)}


def _cut_torn_line(file: IO[bytes]) -> None:
    """Truncate to the last line end. `file` is open for reading and appending."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
