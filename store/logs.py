"""Append-only logs: one JSON object per line.

A kill can leave the last line torn: it is dropped on reading, and cut off before appending. Lines are sealed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Generic, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from store import checksum, jsonfile
from store.documents import MetricsRecord, Part, ProbeRecord
from store.files import StoreError, check_regular, replacing
from store.seals import SealedLog, unsealed

if TYPE_CHECKING:
    import polars

Record = TypeVar("Record", MetricsRecord, ProbeRecord)
Line = TypeVar("Line", bound=Part)

TAIL_BYTES = 4096
"""Enough of the end of a log to hold its last record of each kind."""


@dataclass(frozen=True)
class LogFile(SealedLog, Generic[Line]):
    """A log and the model of its lines. `sha256` is that of the whole log; None if none is stored, or not yet."""

    model: type[Line]
    sha256: str | None = None

    def content(self) -> bytes:
        """The log's bytes; empty if there is no file. Raises StoreError if `sha256` does not match."""
        found = super().content()
        if self.sha256 is not None and checksum.of(found) != self.sha256:
            reason = "its checksum does not match" if self.path.exists() else "is gone"
            raise StoreError(f"{self.path}: {reason}: {self.remedy}")
        return found

    def whole_lines(self) -> bytes:
        """The content without a torn end, checked by `sha256` if known, which is faster, else line by line."""
        if self.sha256 is not None:
            content = self.content()
            return content[: content.rfind(b"\n") + 1]
        return b"".join(body + b"\n" for body in self.bodies())

    def append(self, records: Iterable[Line]) -> None:
        """Append a line for each record, all in one write, after cutting off a torn one."""
        bodies = (record.model_dump_json(exclude_unset=True).encode() for record in records)
        self.add(bodies)

    def records(self) -> Iterator[Line]:
        """Records in the order written. Raises StoreError if a line is damaged."""
        yield from self._parsed(self.bodies())

    def slowly(self, types: Mapping[str, type]) -> polars.DataFrame:
        """Records parsed line by line. The last may be torn; any other that does not fit raises StoreError."""
        import polars as pl  # noqa: PLC0415 (slow to import; most users only write)

        records = [record.model_dump() for record in self.records()]
        return pl.DataFrame(records, schema=types, orient="row")

    def _parsed(self, lines: Iterable[bytes]) -> Iterator[Line]:
        for number, line in enumerate(lines, start=1):
            yield jsonfile.record(line, self.model, f"{self.path}:{number}", self.remedy)


class Whole(LogFile[Line]):
    """A log that was written in one piece: no kill can tear its end."""

    def whole_lines(self) -> bytes:
        return self.content()

    def records(self) -> Iterator[Line]:
        """All records. Raises StoreError if the content or a line is damaged."""
        yield from self._parsed(self.content().splitlines())


class StepLog(LogFile[Record]):
    """A log whose lines each have a `step`."""

    def frame(self, only: Collection[str] = ()) -> polars.DataFrame:
        """Records in the order written, with nulls for absent fields. only: read just these columns, much faster."""
        return together([self], only)[0]

    def last(self, wanted: Callable[[Record], bool]) -> Record | None:
        """The last record that `wanted` accepts, among the last TAIL_BYTES of the file; None if there is none."""
        if not self.path.exists():
            return None
        check_regular(self.path)
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
        for line in reversed(lines):
            with suppress(ValidationError):  # a line whose start was not read
                record = self.model.model_validate_json(unsealed(line))
                if wanted(record):
                    return record
        return None

    def truncate(self, step: int) -> None:
        """Drop the records after `step`."""
        bodies = self.bodies()
        kept = [body for body, record in zip(bodies, self._parsed(bodies), strict=True) if record.step <= step]
        with replacing(self.path) as temporary:
            temporary.touch()
            replace(self, path=temporary, sha256=None).add(kept)


def together(logs: Sequence[LogFile[Line]], only: Collection[str] = ()) -> tuple[polars.DataFrame, list[int]]:
    """Concatenated records of logs of one kind, with nulls for absent fields, and the number of records of each log."""
    import polars as pl  # noqa: PLC0415 (as above)

    if not logs:
        raise ValueError("needs at least one log")
    model = logs[0].model
    known = columns_of(model)
    types = {name: known[name] for name in only or known}
    whole = [log.whole_lines() for log in logs]
    counts = [content.count(b"\n") for content in whole]
    try:
        # Parsing all at once is far faster than log by log, which is far faster than line by line.
        found = pl.read_ndjson(b"".join(whole), schema=pl.Schema(types)) if any(whole) else pl.DataFrame(schema=types)
    except pl.exceptions.PolarsError:
        found = None
    fields = [(name, each) for name, each in model.model_fields.items() if name in types]
    without_nulls = [name for name, each in fields if each.is_required() and NoneType not in get_args(each.annotation)]
    if found is None or found.height != sum(counts) or any(found[name].null_count() for name in without_nulls):
        frames = [log.slowly(types) for log in logs]
        return pl.concat(frames), [frame.height for frame in frames]
    return found, counts


@cache
def columns_of(model: type[Part]) -> Mapping[str, type]:
    hints = get_type_hints(model)
    return {
        name: next(kind for kind in (int, float, str) if kind in (hints[name], *get_args(hints[name])))
        for name in model.model_fields
    }
