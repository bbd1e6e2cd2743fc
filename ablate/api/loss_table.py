"""A table of losses: read from a file or a frame, its columns found and typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ablate.api.logs_of_others import LOSSES
from ablate.errors import ArgumentError, reason_of
from ablate.store.files import check_regular
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("arm", "seed", "loss")
KNOWN = (*NEEDED, "rate", "split", "cost")
SPLITS = ("tuning", "judging")
READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": pl.read_csv,
    ".parquet": pl.read_parquet,
    ".ndjson": pl.read_ndjson,
    ".jsonl": pl.read_ndjson,
}


def read_table(losses: pl.DataFrame | pd.DataFrame | Path | str, metric: str | None = None) -> pl.DataFrame:
    """The known columns of a frame or a file, under the names of `KNOWN`, with a row for each run.

    metric: the column of the loss; by default `loss`, or the first known of those that trainers name.

    Raises:
        ArgumentError: a column is missing, or has values that cannot be read.
    """
    frame = _frame(losses)
    columns = {name: _column(frame, [metric] if metric and name == "loss" else _names(name)) for name in KNOWN}
    for name in NEEDED:
        if columns[name] is None:
            remedy = _separator(Path(losses)) if isinstance(losses, Path | str) else ""
            raise _missing(name, metric, frame.columns, remedy)
    found = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines of a CSV file
    return typed(found.select(pl.col(column).alias(name) for name, column in columns.items() if column))


def typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns named as in `KNOWN`, with their types: seeds are integers or words. Raises ArgumentError."""
    if frame.is_empty():
        raise ArgumentError("losses", "has no rows below its heading")
    for name in ("arm", "seed", "split"):
        if name in frame.columns and frame[name].dtype.is_nested():
            raise ArgumentError("losses", f"column `{name}`: expected numbers or words, not {frame[name].dtype}")
        if name in frame.columns and not (name == "seed" and frame[name].dtype.is_integer()):
            frame = frame.with_columns(pl.col(name).cast(pl.String))
    for name in ("loss", "rate", "cost"):
        if name in frame.columns:
            frame = frame.with_columns(_number(frame, name))
    if "rate" in frame.columns and (frame["rate"] <= 0).any():
        least = frame.filter(pl.col("rate") <= 0)["rate"][0]
        raise ArgumentError("losses", f"column `rate`: expected numbers above 0, not {least:g}")
    if "split" in frame.columns and (odd := sorted(set(frame["split"].drop_nulls()) - set(SPLITS))):
        raise ArgumentError("losses", f"column `split`: expected tuning or judging, not {odd[0]!r}")
    if frame["arm"].null_count() or frame["seed"].null_count():
        raise ArgumentError("losses", "columns `arm` and `seed` may have no empty cells")
    return frame


def _frame(losses: pl.DataFrame | pd.DataFrame | Path | str) -> pl.DataFrame:
    if isinstance(losses, pl.DataFrame):
        return losses
    if not isinstance(losses, Path | str):
        try:
            return pl.from_pandas(losses)
        except TypeError as error:
            raise ArgumentError("losses", f"expected a frame or a path, not {type(losses).__name__}") from error
    path = Path(losses)
    if (read := READERS.get(path.suffix.lower())) is None:
        raise ArgumentError("losses", f"expected a file that ends in {', '.join(READERS)}", path)
    try:
        check_regular(path)
        return read(path)
    except (OSError, pl.exceptions.PolarsError, ValueError) as error:
        reason = f"cannot be read: {reason_of(error)}{_separator(path)}"
        raise ArgumentError("losses", reason, path) from error


def _separator(path: Path) -> str:
    """A remedy for a table that another character than the comma separates."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    found = next((name for mark, name in ((";", "semicolons"), ("\t", "tabs")) if mark in first), None)
    return f" (columns seem to be separated by {found}: they are to be commas, and decimals points)" if found else ""


def _names(name: str) -> Sequence[str]:
    """Names of a column that are looked for, in this order."""
    return (name, *LOSSES) if name == "loss" else (name,)


def _column(frame: pl.DataFrame, names: Sequence[str]) -> str | None:
    """The first column of these names, or of one that differs only in case and spaces around it."""
    for name in names:
        if name in frame.columns:
            return name
        alike = [column for column in frame.columns if column.strip().casefold() == name.casefold()]
        if len(alike) > 1:
            raise ArgumentError("losses", f"columns {' and '.join(map(repr, alike))}: call one of them `{name}`")
        if alike:
            return alike[0]
    return None


def _missing(name: str, metric: str | None, columns: Sequence[str], remedy: str) -> ArgumentError:
    known = f"columns: {', '.join(columns)}{remedy}"
    if metric and name == "loss":
        return ArgumentError("metric", f"no column of that name{did_you_mean(metric, columns)}; {known}", metric)
    other = "; to judge another column, name it as the metric" if name == "loss" and not remedy else ""
    return ArgumentError("losses", f"no column `{name}`{did_you_mean(name, columns)}; {known}{other}")


def _number(frame: pl.DataFrame, name: str) -> pl.Series:
    series = frame[name]
    if series.dtype == pl.String:
        series = series.str.strip_chars().replace({"": None})
    elif not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise ArgumentError("losses", f"column `{name}`: expected numbers, not {series.dtype}")
    try:
        return series.cast(pl.Float64)
    except pl.exceptions.PolarsError as error:
        wrong = (row for row, value in enumerate(series.cast(pl.Float64, strict=False)) if value is None)
        row = next(row for row in wrong if series[row] is not None)
        raise ArgumentError("losses", f"column `{name}`, row {row + 1}: {series[row]!r} is no number") from error
