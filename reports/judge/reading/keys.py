"""Leading columns of every per-run frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from store.documents import StudyDocument
from store.result_columns import Row, Schema

KEYS: Schema = {"arm": pl.String, "seed": pl.Int64, "digest": pl.String}


class RunKey(NamedTuple):
    """A run of an arm. Two arms may share a run."""

    arm: str
    seed: int
    digest: str

    def row(self, values: Mapping[str, object]) -> Row:
        """One row of a frame: the key, then the values."""
        return {**self._asdict(), **values}


def keys_of(study: StudyDocument) -> list[RunKey]:
    return [RunKey(arm.name, run.seed, run.digest) for arm in study.arms for run in arm.runs]


def keyed(frame: pl.DataFrame, key: RunKey, schema: Schema) -> pl.DataFrame:
    """A run's log with the key prepended to each row."""
    known = key._asdict()
    # Column by column: for thousands of small frames, planning a query takes longer than the query.
    keys = {name: pl.Series(name, [known[name]], schema[name]).new_from_index(0, frame.height) for name in known}
    return pl.DataFrame([keys[name] if name in keys else frame[name].cast(kind) for name, kind in schema.items()])
