"""Read a table of losses from a file or a frame: find and type its columns, and keep one row for each run."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from ablate.wings.compare.logs_of_others import BUDGETS as BUDGET_NAMES
from ablate.wings.compare.logs_of_others import LOSSES, STEPS, UNITS, ended
from ablate.wings.compare.loss_files import Table, read_any
from store.errors import ArgumentError
from zoo.errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("arm", "seed", "loss")
BUDGETS = ("size", "params", "flops", "tokens", "tokens_per_second")
KNOWN = (*NEEDED, "rate", "split", "cost", *BUDGETS)
ALSO = {
    **BUDGET_NAMES,
    "loss": LOSSES,
    "params": ("parameters", "n_params", "num_params", "non_embedding_params"),
    "tokens_per_second": (*BUDGET_NAMES["tokens_per_second"], "throughput"),
}
"""Other names of columns, in order of preference."""
SPLITS = ("tuning", "judging")
NO_NUMBER = frozenset(("", "na", "n/a", "#n/a", "<na>", "null", "none"))
"""Spellings of an empty cell in a column of numbers. They are valid names of arms and seeds."""
MOST = 1e100
"""Bound on losses, margins and standard deviations, whose squares are floats."""
NOT_KNOWN = "leave the cell empty if it is unknown"


@dataclass(frozen=True)
class LossTable:
    """Columns named as in `KNOWN` with a row for each run, the user's name for the loss, and notes for the reader.

    Empty losses are null; NaN and infinite ones stay as they are. Seeds are all integers, or all strings.
    """

    frame: pl.DataFrame
    metric: str
    notes: tuple[str, ...] = ()


def read_table(losses: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str, metric: str | None = None) -> LossTable:
    """The known columns of a frame or a file.

    metric: the column of the loss; by default `loss`, or else the first of the names that trainers use (`LOSSES`).

    Raises:
        ArgumentError: a column is missing, has cells that cannot be read, or a run has several rows and no column tells
            which is the last.
    """
    table = read_any(losses)
    sought = {name: (name, *ALSO.get(name, ())) for name in KNOWN} | ({"loss": (metric,)} if metric else {})
    places = {name: _place(table, names) for name, names in sought.items()}
    for name in NEEDED:
        if places[name] is None:
            raise _missing(name, metric, table)
    cells = {name: table.column(place) for name, place in places.items() if place is not None}
    filled = [not all(map(_is_empty, needed)) for needed in zip(*(cells[name] for name in NEEDED), strict=True)]
    rows = list(compress(table.rows, filled))
    if not rows:
        raise ArgumentError("losses", "has no rows below its header")
    written = {name: table.names[place] for name, place in places.items() if place is not None}
    columns = {name: _typed(name, written[name], compress(cells[name], filled), rows) for name in cells}
    frame, notes = _one_row_each(pl.DataFrame({**columns, "row": rows}), table, filled)
    others = [f"`{name}`" for name in LOSSES if name != written["loss"] and name in table.names]
    if metric is None and (others or written["loss"].casefold() != "loss"):
        beside = f", not {' or '.join(others)} (unless you name it as the metric)" if others else ""
        notes = (*notes, f"the loss is `{written['loss']}`{beside}")
    return LossTable(frame.drop("row"), written["loss"], notes)


def _place(table: Table, names: Sequence[str]) -> int | None:
    """Position of the column with the first of these names that is found, ignoring case and outer spaces if no name is
    exact; None if there is none. Raises ArgumentError if several columns match."""
    for name in names:
        same = [place for place, column in enumerate(table.names) if column == name]
        alike = [place for place, column in enumerate(table.names) if column.strip().casefold() == name.casefold()]
        found = same or alike
        if len(found) > 1:
            which = " and ".join(repr(table.names[place]) for place in found)
            raise ArgumentError("losses", f"columns {which}: keep one of them, and call it `{name}`")
        if found:
            return found[0]
    return None


def _missing(name: str, metric: str | None, table: Table) -> ArgumentError:
    known = f"columns: {', '.join(table.names)}{table.remedy}"
    if any(column.endswith("__MIN") for column in table.names):
        known += (
            "; if this is a chart that Weights & Biases exported, name its runs: 'FILE#{arm}-s{seed}', and the metric"
        )
    if metric and name == "loss":
        return ArgumentError("metric", f"no column of that name{did_you_mean(metric, table.names)}; {known}", metric)
    remedies = {"loss": "to judge another column, give its name as the metric", "seed": "0 is the seed of a single run"}
    other = f"; {remedies[name]}" if name in remedies and not table.remedy else ""
    return ArgumentError("losses", f"no column `{name}`{did_you_mean(name, table.names)}; {known}{other}")


def _typed(name: str, written: str, cells: Iterable[object], rows: Sequence[int]) -> pl.Series:
    """A column with its type. Raises ArgumentError with the row of the first invalid cell."""
    found = []
    known: dict[object, str | float | None] = {}  # text that a long history repeats is read once
    for cell, row in zip(cells, rows, strict=True):
        if type(cell) is str and cell in known:
            found.append(known[cell])
            continue
        try:
            found.append(READ[name](cell))
        except ValueError as error:
            raise ArgumentError("losses", f"row {row}: {written.strip()}: {error}") from error
        if type(cell) is str:
            known[cell] = found[-1]
    if name == "seed" and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", str(seed), re.ASCII) for seed in set(found)):
        return pl.Series(name, [int(str(seed)) for seed in found], dtype=pl.Int64)
    return pl.Series(name, found, dtype=pl.String if name in ("arm", "seed", "split", "size") else pl.Float64)


def _is_empty(cell: object) -> bool:
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _word(cell: object) -> str:
    if _is_empty(cell):
        raise ValueError("is empty: every run needs an arm and a seed")
    if isinstance(cell, Iterable) and not isinstance(cell, str):
        raise ValueError(f"expected a number or a word, not {reprlib.repr(cell)}")
    return " ".join(str(cell).strip().splitlines())  # a second line would be printed as if it were ours


def _seed(cell: object) -> str:
    """A seed as text. Whole floats become integers: an empty cell elsewhere makes a column of integers floats."""
    if isinstance(cell, Real) and not isinstance(cell, Integral) and float(cell).is_integer():
        return str(int(float(cell)))
    return _word(cell)


def _split(cell: object) -> str:
    word = "judging" if _is_empty(cell) else str(cell).strip()
    if word not in SPLITS:
        raise ValueError(f"expected tuning or judging, not {reprlib.repr(cell)}")
    return word


def _number(cell: object, remedy: str = "leave the cell empty for a run that failed") -> float | None:
    try:
        if isinstance(cell, str | Real | Decimal) and "_" not in str(cell):  # Python takes 3_51 for 351
            value = float(cell)
            return math.inf if MOST < abs(value) < math.inf else value  # a loss beyond it has diverged
    except (ValueError, OverflowError):
        pass
    if cell is None or (isinstance(cell, str) and cell.strip().casefold() in NO_NUMBER):
        return None
    if isinstance(cell, str) and re.fullmatch(r"\s*[-+]?\d+(,\d+)+(\.\d+)?\s*", cell):
        remedy = "write decimals with a point" + ", and thousands without a comma" * ("." in cell)
    raise ValueError(f"{reprlib.repr(cell)} is not a number: {remedy}")


def _positive(cell: object) -> float | None:
    value = _number(cell, NOT_KNOWN)
    if value is None or math.isnan(value):
        return None
    if not 0 < value < math.inf:
        raise ValueError(f"expected a finite number above 0, not {value:g}: {NOT_KNOWN}")
    return value


def amount(cell: object) -> float | None:
    """A number above 0, also as `125M`, `1.3B` or `1,234`; None if the cell is empty."""
    written = str(cell).strip().replace(",", "") if isinstance(cell, str) else ""
    if found := re.fullmatch(r"(\d+\.?\d*|\.\d+) ?([kmbgt])", written, re.IGNORECASE):
        return _positive(float(found[1]) * UNITS[found[2].casefold()])
    return _positive(written or cell)


READ: dict[str, Callable[[object], str | float | None]] = {
    "arm": _word,
    "seed": _seed,
    "loss": _number,
    "rate": _positive,
    "split": _split,
    "cost": _positive,
    "size": lambda cell: None if _is_empty(cell) else _seed(cell),
    **dict.fromkeys(("params", "flops", "tokens", "tokens_per_second"), amount),
    "step": lambda cell: None if _is_empty(cell) else _number(cell, "expected a step number"),
}
"""Readers of cells, by column. They raise ValueError with the reason and the remedy."""


def _one_row_each(frame: pl.DataFrame, table: Table, filled: Sequence[bool]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """One row per run, and notes: of several rows the last with a loss, by a column that counts steps.

    Histories have a row for each step, many of them without a loss. A run that stopped before the others of its arm has
    no final loss, hence `ended`. Raises ArgumentError if several rows of a run remain.
    """
    run: list[str] = [name for name in ("arm", "seed", "split", "rate", "size", "params") if name in frame.columns]
    place = _place(table, STEPS) if frame.select(pl.struct(run).is_duplicated().any()).item() else None
    if place is None:  # without a column of steps, other tokens or FLOPs are another budget
        run += [name for name in ("tokens", "flops") if name in frame.columns]
    is_twice = pl.struct(run).is_duplicated()
    several = frame.filter(is_twice).select(run).n_unique()
    if several and place is not None:
        steps = _typed("step", table.names[place], compress(table.column(place), filled), frame["row"].to_list())
        step = pl.col("step").fill_null(-math.inf)
        has_loss = pl.col("loss").is_not_null()
        frame = frame.with_columns(step=steps).filter(has_loss | ~has_loss.any().over(run))
        frame = frame.filter(step == step.max().over(run))
    for _, rows in frame.filter(is_twice).group_by(run, maintain_order=True):
        one, other = rows.rows(named=True)[:2]
        raise ArgumentError(
            "losses",
            f"row {other['row']} repeats seed {one['seed']} of {one['arm']} from row {one['row']}: keep one row per "
            "run, that of its last step",
        )
    if not several:
        return frame, ()
    frame, short = ended(frame)
    said = f"{several} runs have several rows: the last one with a loss, by `{table.names[place or 0]}`, counts"
    return frame, (said, *short)
