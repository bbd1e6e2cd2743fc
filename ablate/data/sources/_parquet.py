"""One column of a parquet file, or of an Arrow file such as those of `datasets.save_to_disk`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pyarrow.ipc  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

from store.errors import DataError


def rows(path: Path, column: str) -> Iterator[Any]:
    """The values of `column` that are not null, read in batches of 64 rows.

    Raises:
        DataError: `path` is not a parquet file, or has no such column.
    """
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is not a parquet file: {error}") from error
    with file:
        _check_column(path, column, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=64, columns=[column]):
            yield from (value for value in batch.column(0).to_pylist() if value is not None)


def arrow_rows(path: Path, column: str) -> Iterator[Any]:
    """The same of an Arrow file, or of a stream, as `datasets` writes it.

    Raises:
        DataError: `path` is neither, is truncated, or has no such column.
    """
    try:
        with pyarrow.memory_map(str(path)) as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            reader = pyarrow.ipc.open_file(source) if is_file else pyarrow.ipc.open_stream(source)
            _check_column(path, column, reader.schema.names)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield from (value for value in batch.column(column).to_pylist() if value is not None)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not an Arrow file, or is truncated: {error}") from error


def _check_column(path: Path, column: str, names: Sequence[str]) -> None:
    if column not in names:
        raise DataError(f"{path} has no column {column!r}; columns: {', '.join(names)}")
