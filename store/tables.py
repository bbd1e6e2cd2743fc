"""Results, metrics and final losses of many runs as frames: from indexes of wings as far as they are current, else
from files.

For a hundred thousand runs, parsing a document each takes far longer than all further work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from store.documents import ItemLoss, MetricsRecord
from store.extensions import module_of
from store.logs import columns_of
from store.result_columns import RUN, TYPES, Schema, result_row
from store.stamps import file_stamp
from store.store import Store

METRICS = ("step", "tokens", "seconds", "loss", "validation_loss", "accuracy")
LOSSES = tuple(ItemLoss.model_fields)


Stamps: TypeAlias = NDArray[np.int64]
"""Inode, size, mtime and ctime of one or several files of each run: (runs, 4 · files)."""


def stamps(root: Path, names: Sequence[str], source: str) -> Stamps:
    """Current stamps of this file in each of these folders."""
    place = os.fspath(root)
    return np.array([file_stamp(f"{place}/{name}/{source}") for name in names], dtype=np.int64).reshape(-1, 4)


RESULTS = ("result.json", "run.json")
"""Files of a run that its row of results is read from."""
SOURCES = ("result.json", "run.json", "metrics.ndjson", "losses.ndjson")
"""Files of a run that the frames are read from."""


class RunTables:
    """Frames of these runs, in this order, with the state of their files at first use."""

    def __init__(self, store: Store, digests: Sequence[str]) -> None:
        self._store, self._names = store, list(map(store.run_name, digests))
        self._stamps = cache(partial(stamps, store.root, self._names))

    @property
    def stamps(self) -> bytes:
        """Inodes, sizes and times of all files that the frames are read from."""
        return b"".join(self._stamps(source).tobytes() for source in SOURCES)

    @cached_property
    def results(self) -> pl.DataFrame:
        """One row for each run. A run without a result has the status `partial` or `absent`."""

        def read(names: Sequence[str]) -> pl.DataFrame:
            return pl.DataFrame(map(self._row, names), schema=RUN)

        return self._rows("results", RESULTS, RUN, read)

    def metrics(self, only: Collection[str]) -> tuple[pl.DataFrame, list[int]]:
        """These columns of `METRICS` of all runs, concatenated, and the number of records of each run."""
        columns = {name: kind for name, kind in columns_of(MetricsRecord).items() if name in METRICS}
        sources = ("result.json", "metrics.ndjson")

        def read(names: Sequence[str]) -> pl.DataFrame:
            return _lists(*self._store.read_many_metrics(names, METRICS))

        rows = self._rows("metrics", sources, _listed(columns), read)
        return _unlisted(rows.select(only))

    def losses(self, only: Collection[str]) -> tuple[pl.DataFrame, list[int]]:
        """These columns of the final losses by document of all runs, and the number of records of each run."""
        sources = ("result.json", "losses.ndjson")

        def read(names: Sequence[str]) -> pl.DataFrame:
            return _lists(*self._store.read_many_losses(names, LOSSES))

        rows = self._rows("losses", sources, _listed(columns_of(ItemLoss)), read)
        return _unlisted(rows.select(only))

    def _rows(
        self, kind: str, sources: Sequence[str], columns: Schema, read: Callable[[Sequence[str]], pl.DataFrame]
    ) -> pl.DataFrame:
        """These columns of each run. sources: the files of a run that `read` reads them from."""
        if (wing := module_of(__name__)) is None:
            return read(self._names).select(list(columns)).cast(pl.Schema(columns))
        now = np.hstack([self._stamps(source) for source in sources])
        found: pl.DataFrame = wing.Index(self._store.root, kind, sources, columns).rows(self._names, now, read)
        return found

    def _row(self, name: str) -> dict[str, object]:
        run, result = self._store.read_run(name), self._store.read_result(name)
        found: dict[str, object] = {"status": "absent" if run is None else "partial"}
        if run is not None:
            found |= {"data": run.data.digest, "dtype": run.numerics.dtype, "matmul": run.numerics.matmul}
        if result is not None:
            found |= result_row(result)
            found["has_probes"] = result.sums.probes is not None or self._store.has_probes(name)  # older ones lack sums
            found["environment"] = result.environment.model_dump_json()
            found["gpu"] = result.gpu.model_dump_json() if result.gpu else None
        return found


def _listed(columns: Mapping[str, type]) -> Schema:
    return {name: pl.List(TYPES[kind]) for name, kind in columns.items()}


def _lists(records: pl.DataFrame, counts: Sequence[int]) -> pl.DataFrame:
    """One row for each run, with its records as lists."""
    run = pl.Series("run", np.repeat(np.arange(len(counts)), counts))
    grouped = records.with_columns(run).group_by("run", maintain_order=True).agg(pl.all())
    runs = pl.DataFrame({"run": np.arange(len(counts))})
    found = runs.join(grouped, on="run", how="left", maintain_order="left").drop("run")
    return found.with_columns(pl.all().fill_null([]))


def _unlisted(lists: pl.DataFrame) -> tuple[pl.DataFrame, list[int]]:
    counts = lists.to_series(0).list.len()
    return lists.filter(counts > 0).explode(lists.columns), counts.to_list()
