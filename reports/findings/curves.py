"""Curves over training and over context length, averaged over seeds: what the figures draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reports.reading.collect import Collected

BINS = {"train": 100, "train, coarse": 20}
"""At most so many points of a training-loss curve, by kind: the loss is averaged over equal runs of steps."""

Floats = NDArray[np.float64]
Line = tuple[Floats, Floats]


@dataclass(frozen=True)
class Point:
    """A mean over seeds at one x, with the seeds' range."""

    x: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Curve:
    """One line of a figure: `kind` says what it is of, `batch` is set for measurements of speed."""

    arm: str
    kind: str
    points: tuple[Point, ...]
    batch: int | None = None


def training_curves(data: Collected) -> tuple[Curve, ...]:
    """Loss against step, per arm: averages of the training loss by the kinds of `BINS`, and `validation`."""
    return tuple(
        Curve(arm, kind, _average([line for _, line in _lines(data, arm, column, bins)]))
        for arm in _arms(data)
        for kind, column, bins in (
            *((kind, "loss", bins) for kind, bins in BINS.items()),
            ("validation", "validation_loss", None),
        )
    )


def training_accuracy(data: Collected) -> tuple[Curve, ...]:
    """Accuracy on what validates against step, per arm; none for text."""
    seeds = {arm: [line for _, line in _lines(data, arm, "accuracy")] for arm in _arms(data)}
    return tuple(Curve(arm, "accuracy", _average(lines)) for arm, lines in seeds.items() if lines)


def difference_curves(data: Collected) -> tuple[Curve, ...]:
    """Validation loss minus the baseline's with the same seed, against the share of training done.

    Arms may take different numbers of steps, so the baseline's curve is read off (linearly) at the
    same share of its own training.
    """
    baseline = dict(_lines(data, data.study.baseline, "validation_loss"))
    return tuple(
        Curve(arm, "difference", _average(_differences(data, arm, baseline)))
        for arm in _arms(data)
        if arm != data.study.baseline
    )


def _differences(data: Collected, arm: str, baseline: dict[int, Line]) -> list[Line]:
    pairs = [(line, baseline[seed]) for seed, line in _lines(data, arm, "validation_loss") if seed in baseline]
    return [
        (x / x[-1], y - np.interp(x / x[-1], base_x / base_x[-1], base_y))
        for (x, y), (base_x, base_y) in pairs
        if x[-1] > 0 and base_x[-1] > 0
    ]


SERVING = {
    "cache": ("cache", pl.col("allocated_bytes")),
    "prefill": ("prefill", pl.col("median")),
    "first token": ("prefill", 1000 * pl.col("seconds")),
    "reading": ("prefill", 1000 * pl.col("seconds_to_read")),
    "prefill memory": ("prefill", pl.col("peak_memory_bytes") / 2**20),
    "decode": ("decode", pl.col("median")),
    "output token": ("decode", 1000 * pl.col("seconds")),
    "bandwidth": ("decode", 100 * pl.col("bandwidth_utilisation")),
    "decode memory": ("decode", pl.col("peak_memory_bytes") / 2**20),
}
"""Kind of a curve → of which measurements, and what of them: bytes, tokens/s, ms, %, MiB."""


def context_curves(data: Collected) -> tuple[Curve, ...]:
    """What serving costs against context, by kind, arm and batch size."""
    return tuple(
        Curve(str(arm), kind, _over_context(rows), int(str(batch)))
        for kind, (measured, value) in SERVING.items()
        for (arm, batch), rows in data.measures.filter(kind=measured)
        .with_columns(value.alias("y"))
        .drop_nulls("y")
        .group_by("arm", "batch", maintain_order=True)
    )


def _over_context(rows: pl.DataFrame) -> tuple[Point, ...]:
    summary = (
        rows.group_by("context")
        .agg(mean=pl.mean("y"), low=pl.min("y"), high=pl.max("y"), seeds=pl.len())
        .sort("context")
    )
    return tuple(Point(*row) for row in summary.iter_rows())


def over_seeds(x: float, values: list[float]) -> Point:
    """The mean and range of one value per seed."""
    return Point(x, sum(values) / len(values), min(values), max(values), len(values))


def _arms(data: Collected) -> list[str]:
    return [arm.name for arm in data.study.arms]


def _lines(data: Collected, arm: str, column: str, bins: int | None = None) -> Iterator[tuple[int, Line]]:
    """(seed, (steps, values)) of the finished runs of an arm; the baseline's may be as few as none."""
    finished = data.runs.filter(arm=arm, status="finished")
    for digest, seed in finished.select("digest", "seed").iter_rows():
        rows = data.curve_of.get((arm, digest), data.curves[:0])
        y = rows[column].to_numpy()
        known = ~np.isnan(y)  # nulls are NaN here
        if known.any():
            x, y = rows["step"].to_numpy().astype(np.float64)[known], y[known]
            yield seed, (x, y) if bins is None else _binned(x, y, bins)


def _binned(x: Floats, y: Floats, bins: int) -> Line:
    """Means over at most `bins` equal runs of neighbouring points."""
    starts = bin_starts(len(x), bins)
    sizes = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes


def bin_starts(n: int, bins: int) -> NDArray[np.int64]:
    """Where each of at most `bins` runs of n points begins; their sizes differ by one at most."""
    parts = min(bins, n)
    return np.arange(parts) * n // parts


def _average(lines: list[Line]) -> tuple[Point, ...]:
    """Mean and range over seeds, at the points of the seed that has most of them."""
    if not lines:
        return ()
    grid = max((x for x, _ in lines), key=len)
    values = np.stack([np.interp(grid, x, y) for x, y in lines])
    columns = (grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    return tuple(
        Point(float(x), float(mean), float(low), float(high), len(lines))
        for x, mean, low, high in zip(*columns, strict=True)
    )
