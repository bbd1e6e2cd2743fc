"""Results, metrics and final losses of many runs as frames: from the store's indexes as far as they are current, else
from files.

For a hundred thousand runs, parsing a document each takes far longer than all further work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property, partial

import numpy as np
import polars as pl

from store.documents import ItemLoss, MetricsRecord
from store.index import Index, results_index, stamps
from store.logs import columns_of
from store.result_columns import RUN, TYPES, Schema, result_row
from store.store import Store

METRICS = ("step", "tokens", "seconds", "loss", "validation_loss", "accuracy")
LOSSES = tuple(ItemLoss.model_fields)


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

        return self._rows(results_index(self._store.root), read)

    def metrics(self, only: Collection[str]) -> tuple[pl.DataFrame, list[int]]:
        """These columns of `METRICS` of all runs, concatenated, and the number of records of each run."""
        columns = {name: kind for name, kind in columns_of(MetricsRecord).items() if name in METRICS}
        index = Index(self._store.root, "metrics", ("result.json", "metrics.ndjson"), _listed(columns))
        rows = self._rows(index, lambda names: _lists(*self._store.read_many_metrics(names, METRICS)))
        return _unlisted(rows.select(only))

    def losses(self, only: Collection[str]) -> tuple[pl.DataFrame, list[int]]:
        """These columns of the final losses by document of all runs, and the number of records of each run."""
        index = Index(self._store.root, "losses", ("result.json", "losses.ndjson"), _listed(columns_of(ItemLoss)))
        rows = self._rows(index, lambda names: _lists(*self._store.read_many_losses(names, LOSSES)))
        return _unlisted(rows.select(only))

    def _rows(self, index: Index, read: Callable[[Sequence[str]], pl.DataFrame]) -> pl.DataFrame:
        return index.rows(self._names, np.hstack([self._stamps(source) for source in index.sources]), read)

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
