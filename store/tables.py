"""Results, metrics and final losses of many runs as frames: from the store's indexes as far as they are current, else
from files.

For a hundred thousand runs, parsing a document each takes far longer than all further work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice

import numpy as np
import polars as pl

from store.documents import ItemLoss, MetricsRecord, StudyArm, StudyDocument
from store.documents.study import UNJUDGED
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


def _listed(columns: dict[str, type]) -> Schema:
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


# Other runs of a store that tell of a study's: runs of the same arms, and runs of like size, length and data.

ALIKE = 2.0
"""Runs are alike if their size and their length differ by at most this factor."""
STUDIES_READ = 50
"""Most studies of a store that are read."""


@dataclass(frozen=True)
class Likeness:
    """Conditions of a study's runs: non-embedding parameters and steps of its baseline, and the digests of its data."""

    parameters: float
    steps: float
    data: frozenset[str | None]

    def has(self, base: StudyArm) -> bool:
        """Whether a baseline's runs are of like size and length, on the same data."""
        near = _near(base.length.parameters, self.parameters) and _near(base.steps, self.steps)
        return near and base.data in self.data


def like_tables(store: Store, like: Likeness, without: Collection[str]) -> Iterator[Mapping[str, Mapping[int, float]]]:
    """Losses by arm and seed of each judged study of like runs. without: digests of runs that are left out."""
    for study in islice(store.readable_studies(), STUDIES_READ):
        if study.scale not in UNJUDGED and like.has(study.baseline_arm):
            table = {arm.name: _losses(store, arm, without) for arm in study.arms}
            if any(table.values()):
                yield table


def shared_runs(store: Store, study: StudyDocument) -> dict[str, dict[int, float]]:
    """Runs of a study's baseline on other seeds, in other studies: losses by study and seed, infinite for a failed run.

    The baseline is the same if its identity is, which covers all but the seed that determines its losses. A study with
    another arm in common asks the same question of other seeds, and is judged by itself.
    """
    own = {arm.identity for arm in study.arms}
    base = study.baseline_arm
    seen, found = {run.seed for run in base.runs}, {}
    for other in store.readable_studies():
        same = [arm for arm in other.arms if arm.identity in own]
        if (other.name, other.scale) == (study.name, study.scale) or [arm.identity for arm in same] != [base.identity]:
            continue
        losses = {seed: loss for seed, loss in _losses(store, same[0], ()).items() if seed not in seen}
        if losses:
            found[f"{other.name}@{other.scale}"] = losses
            seen |= losses.keys()
    return found


def _losses(store: Store, arm: StudyArm, without: Collection[str]) -> dict[int, float]:
    """Losses by seed of an arm's runs that ended; infinite for one that failed."""
    ended = {run.seed: store.outcome(run.digest) for run in arm.runs if run.digest not in without}
    return {
        seed: found.loss if found.status == "finished" and found.loss is not None else math.inf
        for seed, found in ended.items()
        if found is not None
    }


def _near(one: float, other: float) -> bool:
    return bool(one and other) and max(one / other, other / one) <= ALIKE
