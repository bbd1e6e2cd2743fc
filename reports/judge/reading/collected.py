"""Collected data of a study: frames with a row for every run, even a missing one, and curves averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reports.judge.noise import Noise
from reports.judge.reading.documents import NO_INPUTS, Inputs, StudyDocuments, TextReferences
from reports.judge.reading.evaluations import KEYS
from store.documents import CostsDocument, Environment, GpuState, LedgerRecord, StudyDocument

RunCurve = Mapping[str, NDArray[np.float64]]
"""Logged columns of one run, or of several, in the order written; nulls are NaN."""


@dataclass(frozen=True)
class Collected:
    """A study and its runs.

    `scores` are evaluation scores, `items` each item's contribution, `grouped` the tasks whose group has the same
    score. `environments` and `gpus` (sensor readings) are keyed by run digest. `losses` are final losses by document.
    `ledger` holds earlier judgements under the study's name, `elsewhere` those under other names in the same store.
    `frames` belong to sections and are keyed by name.
    """

    study: StudyDocument
    runs: pl.DataFrame
    curves: pl.DataFrame
    scores: pl.DataFrame
    items: pl.DataFrame
    grouped: frozenset[str]
    environments: Mapping[str, Environment]
    losses: pl.DataFrame
    rungs: pl.DataFrame
    """Runs of every rung of a ladder; empty without one."""
    gpus: Mapping[str, GpuState] = field(default_factory=dict)
    ledger: tuple[LedgerRecord, ...] = ()
    elsewhere: tuple[tuple[LedgerRecord, ...], ...] = ()
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    loss_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of `frames` in nats per token, by frame. The frame of an evaluation has its name; if it has such columns,
    the evaluation's scores are losses, too."""
    inputs: Inputs = NO_INPUTS
    references: Mapping[str, TextReferences] = field(default_factory=dict)
    """Losses of simple models on the text of each arm."""
    store_option: str = ""
    """The option that points commands to the store (`Store.option`)."""
    costs: CostsDocument | None = None
    """The arms' speeds, measured against each other."""
    shared: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Losses of the baseline on other seeds, in other studies of the store: by study and seed."""
    history: Noise | None = None
    """Noise of one run of like studies of the store."""
    ahead: Noise | None = None
    """The same with this study's own runs: what a study of fresh seeds will be planned and judged by."""
    began: str | None = None
    """Start of the first run of a registered study (ISO 8601)."""

    @cached_property
    def logs(self) -> dict[str, ArmLogs]:
        """Logs of the runs of each arm."""
        return _by_arm(self.curves)


@dataclass(frozen=True)
class ArmLogs:
    """Concatenated logs of an arm's runs: thousands of frames, one per run, would take longer to build and query than
    all later work. `ends` holds each run's start, and the last run's end."""

    digests: list[str]
    ends: NDArray[np.int64]
    columns: RunCurve

    @cached_property
    def place(self) -> dict[str, int]:
        """Index of each run by digest."""
        return {digest: place for place, digest in enumerate(self.digests)}

    def of(self, digest: str) -> RunCurve | None:
        """The log of one run, or None. Two arms may share a run."""
        place = self.place.get(digest)
        if place is None:
            return None
        start, end = self.ends[place : place + 2]
        return {name: values[start:end] for name, values in self.columns.items()}

    @cached_property
    def steps(self) -> NDArray[np.float64] | None:
        """The logged steps, if all runs logged the same ones, else None."""
        lengths = np.diff(self.ends)
        if (lengths != lengths[0]).any():
            return None
        steps = self.matrix("step")
        return steps[0] if (steps == steps[0]).all() else None

    def matrix(self, column: str) -> NDArray[np.float64]:
        """Values of shape (runs, steps). All runs must have logged equally often."""
        return self.columns[column].reshape(len(self.digests), -1)


def _by_arm(curves: pl.DataFrame) -> dict[str, ArmLogs]:
    # groups of adjacent rows with equal (arm, digest), and where each starts
    runs = curves.select(pl.struct("arm", "digest").rle_id()).to_series()
    starts = np.flatnonzero(np.diff(runs.to_numpy().astype(np.int64), prepend=-1))
    keys, ends = curves.select("arm", "digest")[starts], np.append(starts, curves.height)
    if keys.n_unique() < keys.height or keys["arm"].rle_id().n_unique() > keys["arm"].n_unique():
        return _by_arm(curves.sort("arm", "digest", maintain_order=True))  # makes runs and arms contiguous
    numbers = {name: curves[name].to_numpy().astype(np.float64) for name in curves.columns if name not in KEYS}
    found, first = {}, 0
    for arm, of_arm in keys.group_by("arm", maintain_order=True):
        # starts of the arm's runs and the end of the last: slices of the arrays, without copies
        own = ends[first : first + of_arm.height + 1]
        columns = {name: values[own[0] : own[-1]] for name, values in numbers.items()}
        found[str(arm[0])] = ArmLogs(of_arm["digest"].to_list(), own - own[0], columns)
        first += of_arm.height
    return found


# What a section of the report reads from the store.

Frames = Mapping[str, pl.DataFrame]


class SectionReader:
    """The frames of one section. Subclasses summarise and draw them."""

    @classmethod
    def name(cls) -> str:
        """Name of the section: its module's name."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Frames:
        """Frames that the section reads from the store, by name."""
        return {}

    @classmethod
    def losses(cls) -> Mapping[str, Sequence[str]]:
        """Columns in nats per token, by frame: they become nats per byte if arms have different tokenizers."""
        return {}


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


def points_by(x: str, y: str, rows: pl.DataFrame) -> tuple[CurvePoint, ...]:
    """Mean and range of a column over the rows with each value of another."""
    over = rows.group_by(x).agg(mean=pl.mean(y), low=pl.min(y), high=pl.max(y), seeds=pl.len()).sort(x)
    return tuple(CurvePoint(*row) for row in over.iter_rows())


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
