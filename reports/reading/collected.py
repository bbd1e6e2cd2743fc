"""What was read of a study: frames, with a row for every run, absent ones too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from ablate.store.documents import Environment, LedgerRecord, StudyDocument


@dataclass(frozen=True)
class Collected:
    """A study and its runs. `frames` are those of sections, by name.

    `scores` are those of evaluations, `items` what each item says of them, and `grouped` the tasks whose group has the
    score too. `environments` maps a run's digest to what it ran on, `losses` are final ones by document, `ledger` is
    what was judged for the study's question before.
    """

    study: StudyDocument
    runs: pl.DataFrame
    curves: pl.DataFrame
    scores: pl.DataFrame
    items: pl.DataFrame
    grouped: frozenset[str]
    environments: Mapping[str, Environment]
    losses: pl.DataFrame
    ledger: tuple[LedgerRecord, ...] = ()
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @cached_property
    def curve_of(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """The curve of each run by (arm, digest): two arms may share a run."""
        return self.curves.partition_by("arm", "digest", as_dict=True)
