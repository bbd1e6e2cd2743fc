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
"""Logged columns of a run, in the order written; nulls are NaN."""


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
    costs: CostsDocument | None = None
    """The arms' speeds, measured against each other."""
    began: str | None = None
    """Start of the first run of a registered study (ISO 8601)."""

    @cached_property
    def curve_of(self) -> dict[tuple[str, str], RunCurve]:
        """The curve of each run by (arm, digest): two arms may share a run."""
        return _by_run(self.curves)


def _by_run(curves: pl.DataFrame) -> dict[tuple[str, str], RunCurve]:
    """A frame for each of thousands of runs takes longer to make and to ask than all else that is done with them."""
    ordered = curves.sort("arm", "digest", maintain_order=True)
    numbers = {name: ordered[name].to_numpy().astype(np.float64) for name in ordered.columns if name not in KEYS}
    ids = ordered.select(pl.struct("arm", "digest").rle_id()).to_series().to_numpy().astype(np.int64)
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    keys = ordered.select("arm", "digest")[starts].rows()
    ends = np.append(starts, len(ids))[1:]
    return {
        (arm, digest): {name: values[start:end] for name, values in numbers.items()}
        for (arm, digest), start, end in zip(keys, starts, ends, strict=True)
    }
