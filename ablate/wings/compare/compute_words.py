"""Effective compute in words, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from reports.judge.statistics.estimates import Interval
from reports.page.wording import words

Row = Mapping[str, Any]
"""A row of a frame of `ablate.compare`, by column."""
HEADING = ("arm", "against", "effective compute", "95 % interval", "p", "verdict", "at equal seconds")


def table(compute: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """A row per arm, under `HEADING`."""
    for row in compute.iter_rows(named=True):
        factor = interval(row, "factor", "low", "high")
        value, _, ends = words.times(factor).partition(" ") if factor else ("–", "", "")
        seconds = interval(row, "seconds", "seconds_low", "seconds_high")
        p = "–" if row["p"] is None else f"{row['p']:.2g}"
        in_time = words.times(seconds) if seconds else "–"
        yield row["arm"], row["against"], value, ends.strip("()") or "–", p, row["verdict"], in_time


def sentence(row: Row) -> str:
    """`wide: over 4 budgets ×1.08 (1.01 to 1.16) at equal FLOPs; at the largest budget alone ×1.05 (0.95 to 1.17).`"""
    factor = interval(row, "factor", "low", "high")
    if factor is None:
        return f"{row['arm']}: no effective compute: {row['reason']}."
    said = [f"over {row['budgets']} budget{'s' * (row['budgets'] > 1)} {words.times(factor)} at equal FLOPs"]
    if seconds := interval(row, "seconds", "seconds_low", "seconds_high"):
        said.append(f"it runs at {row['speed']:.2f}× the FLOP/s, so {words.times(seconds)} at equal seconds")
    last = interval(row, "largest", "largest_low", "largest_high")
    if row["budgets"] > 1 and last:
        said.append(f"at the largest budget alone {words.times(last)}")
    if row["changes"]:
        side = "advantage" if factor.value > 1 else "disadvantage"
        change = f"×{row['per_tenfold']:.2f} per tenfold compute, {words.p_value(row['trend_p'])}"
        said.append(f"its {side} {row['changes']} with compute ({change})")
    if row["reason"]:
        said.append(row["reason"])
    return f"{row['arm']}: {'; '.join(said)}."


def interval(row: Row, *names: str) -> Interval | None:
    """The interval in these columns; None if they are null."""
    value, low, high = (row[name] for name in names)
    return None if value is None else Interval(value, low or 0.0, math.inf if high is None else high)
