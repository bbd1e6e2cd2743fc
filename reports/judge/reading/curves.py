"""Curves averaged over seeds, as figures draw them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.judge.reading.collected import Collected

Floats = NDArray[np.float64]
Line = tuple[Floats, Floats]


@dataclass(frozen=True)
class CurvePoint:
    """A mean over seeds at one x, with the range of the seeds."""

    x: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Curve:
    """One line of a figure. `kind` names the quantity; `batch` is set for speed measurements."""

    arm: str
    kind: str
    points: tuple[CurvePoint, ...]
    batch: int | None = None


def over_seeds(x: float, values: list[float]) -> CurvePoint:
    """Mean and range of one value per seed."""
    return CurvePoint(x, sum(values) / len(values), min(values), max(values), len(values))


def lines_of(data: Collected, arm: str, column: str, bins: int | None = None) -> Iterator[tuple[int, Line]]:
    """(seed, (steps, values)) of each finished run of an arm that logged this column; possibly none."""
    logs = data.logs.get(arm)
    if logs is None or np.isnan(logs.columns[column]).all():
        return
    finished = data.runs.filter(arm=arm, status="finished")
    for digest, seed in finished.select("digest", "seed").iter_rows():
        logged = logs.of(digest)
        if logged is None:
            continue
        known = ~np.isnan(logged[column])
        if known.any():
            x, y = logged["step"][known], logged[column][known]
            yield seed, (x, y) if bins is None else _binned(x, y, bins)


def _binned(x: Floats, y: Floats, bins: int) -> Line:
    """Means over at most `bins` equal groups of neighbouring points. x: (n,); y: (n,) or (runs, n)."""
    starts = bin_starts(len(x), bins)
    sizes = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts, axis=-1) / sizes


def bin_starts(n: int, bins: int) -> NDArray[np.int64]:
    """Start index of each of at most `bins` groups of n points; group sizes differ by at most one."""
    parts = min(bins, n)
    return np.arange(parts) * n // parts


def average(lines: list[Line]) -> tuple[CurvePoint, ...]:
    """Mean and range over seeds, interpolated at the points of the seed that has most."""
    if not lines:
        return ()
    grid = max((x for x, _ in lines), key=len)
    return _points(grid, np.stack([np.interp(grid, x, y) for x, y in lines]))


def _points(grid: Floats, values: Floats) -> tuple[CurvePoint, ...]:
    """values: (seeds, points)."""
    columns = (grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    return tuple(
        CurvePoint(float(x), float(mean), float(low), float(high), len(values))
        for x, mean, low, high in zip(*columns, strict=True)
    )


def mean_curve(data: Collected, arm: str, column: str, bins: int | None = None) -> tuple[CurvePoint, ...]:
    """Average over the finished runs of an arm, vectorised if they all logged the same steps."""
    logs = data.logs.get(arm)
    if logs is not None and logs.steps is not None:
        finished = data.runs.filter(arm=arm, status="finished")["digest"]
        values = logs.matrix(column)[[logs.place[digest] for digest in finished if digest in logs.place]]
        known = ~np.isnan(values).all(axis=0)
        if not known.any():
            return ()
        x, y = logs.steps[known], values[:, known]
        if not np.isnan(y).any():
            return _points(*((x, y) if bins is None else _binned(x, y, bins)))
    return average([line for _, line in lines_of(data, arm, column, bins)])
