"""Collected data of a study: frames, with a row for every run, absent ones too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ablate.store.documents import CostsDocument, Environment, GpuState, LedgerRecord, StudyDocument
from reports.reading.inputs import NO_INPUTS, Inputs
from reports.reading.keys import KEYS

RunCurve = Mapping[str, NDArray[np.float64]]
"""Logged columns of a run, or of several, in the order written; nulls are NaN."""


@dataclass(frozen=True)
class Collected:
    """A study and its runs. `frames` are those of sections, by name.

    `scores` are those of evaluations, `items` what each item says of them, and `grouped` the tasks whose group has the
    score too. `environments` maps a run's digest to what it ran on, `gpus` to the sensors of its GPU, `losses` are
    final ones by document, `ledger` is what was judged under the study's name before, `elsewhere` what was under others
    in the same store.
    """

    study: StudyDocument
    runs: pl.DataFrame
    curves: pl.DataFrame
    scores: pl.DataFrame
    items: pl.DataFrame
    grouped: frozenset[str]
    environments: Mapping[str, Environment]
    losses: pl.DataFrame
    gpus: Mapping[str, GpuState] = field(default_factory=dict)
    ledger: tuple[LedgerRecord, ...] = ()
    elsewhere: tuple[tuple[LedgerRecord, ...], ...] = ()
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    inputs: Inputs = NO_INPUTS
    store_option: str = ""
    """The option by which commands find the store (`Store.option`)."""
    costs: CostsDocument | None = None
    """The arms' speeds, measured against each other."""
    began: str | None = None
    """Start of the first run of a registered study (ISO 8601)."""

    @cached_property
    def logs(self) -> dict[str, ArmLogs]:
        """Logs of the runs of each arm."""
        return _by_arm(self.curves)


@dataclass(frozen=True)
class ArmLogs:
    """The logs of an arm's runs below each other: a frame for each of thousands of runs takes longer to make and to ask
    than all else that is done with them. `ends` is where each begins, and where the last ends."""

    digests: list[str]
    ends: NDArray[np.int64]
    columns: RunCurve

    @cached_property
    def place(self) -> dict[str, int]:
        """Places by digest."""
        return {digest: place for place, digest in enumerate(self.digests)}

    def of(self, digest: str) -> RunCurve | None:
        """The log of one run, None where it has none. Two arms may share a run."""
        place = self.place.get(digest)
        if place is None:
            return None
        start, end = self.ends[place : place + 2]
        return {name: values[start:end] for name, values in self.columns.items()}

    @cached_property
    def steps(self) -> NDArray[np.float64] | None:
        """The steps of every run, where all logged the same ones."""
        lengths = np.diff(self.ends)
        if (lengths != lengths[0]).any():
            return None
        steps = self.matrix("step")
        return steps[0] if (steps == steps[0]).all() else None

    def matrix(self, column: str) -> NDArray[np.float64]:
        """A row for each run, where all logged as much."""
        return self.columns[column].reshape(len(self.digests), -1)


def _by_arm(curves: pl.DataFrame) -> dict[str, ArmLogs]:
    runs = curves.select(pl.struct("arm", "digest").rle_id()).to_series()
    starts = np.flatnonzero(np.diff(runs.to_numpy().astype(np.int64), prepend=-1))
    keys, ends = curves.select("arm", "digest")[starts], np.append(starts, curves.height)
    if keys.n_unique() < keys.height or keys["arm"].rle_id().n_unique() > keys["arm"].n_unique():
        return _by_arm(curves.sort("arm", "digest", maintain_order=True))  # each run in one piece, and each arm
    numbers = {name: curves[name].to_numpy().astype(np.float64) for name in curves.columns if name not in KEYS}
    found, first = {}, 0
    for arm, of_arm in keys.group_by("arm", maintain_order=True):
        own = ends[first : first + of_arm.height + 1]
        columns = {name: values[own[0] : own[-1]] for name, values in numbers.items()}
        found[str(arm[0])] = ArmLogs(of_arm["digest"].to_list(), own - own[0], columns)
        first += of_arm.height
    return found
