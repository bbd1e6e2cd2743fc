"""One column of a parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
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
        names = file.schema_arrow.names
        if column not in names:
            raise DataError(f"{path} has no column {column!r}; columns: {', '.join(names)}")
        for batch in file.iter_batches(batch_size=64, columns=[column]):
            yield from (value for value in batch.column(0).to_pylist() if value is not None)
