"""Results, metrics and final losses of many runs as frames: from indexes of wings where current, else from files.

The columns of a result are derived from the types and units of its fields: their only list. For a hundred thousand
runs, parsing a document each takes far longer than all further work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
from numpy.typing import NDArray

from store.documents import ItemLoss, MetricsRecord, Nats, Part, ResultDocument, Unit
from store.extensions import module_of
from store.logs import columns_of
from store.stamps import file_stamp
from store.store import Store

Schema: TypeAlias = dict[str, type[pl.DataType] | pl.DataType]
Row: TypeAlias = dict[str, object]

TYPES: dict[object, pl.DataType] = {int: pl.Int64(), float: pl.Float64(), str: pl.String()}
FIELDS = {
    name: hint
    for name, hint in get_type_hints(ResultDocument, include_extras=True).items()
    if name not in ("digest", "version", "model_config")
}


def _columns(name: str, hint: Any) -> Iterator[tuple[str, pl.DataType]]:
    """Columns of a field. A part gives its median and its integer fields, or nothing if it has no median."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Literal:
        yield name, pl.String()
    elif origin is tuple:
        yield name, pl.List(TYPES[inside[0]])
    elif inside:  # annotated or optional
        yield from _columns(name, inside[0])
    elif not issubclass(hint, Part):
        yield name, TYPES[hint]
    elif "median" in hint.model_fields:
        yield name, pl.Float64()
        yield from ((f"{name}_{each}", pl.Int64()) for each, of in hint.model_fields.items() if of.annotation is int)


def _units(hint: Any) -> set[str]:
    inner = get_args(hint) if get_origin(hint) is not Literal else ()
    own = {each.name for each in inner if isinstance(each, Unit)}
    return own.union(*map(_units, inner)) if get_origin(hint) is not Annotated else own


RESULT: Schema = {column: kind for name, hint in FIELDS.items() for column, kind in _columns(name, hint)}
RUN: Schema = {
    **RESULT,
    "environment": pl.String(),
    "gpu": pl.String(),
    "has_probes": pl.Boolean(),
    "data": pl.String(),
    "dtype": pl.String(),
    "matmul": pl.String(),
}
"""Columns of a run: those of its result, null without one; its environment and GPU as JSON; whether it has probes; and
fields of `run.json`."""
LOSSES = tuple(name for name in RESULT if name in FIELDS and _units(FIELDS[name]) & _units(Nats))
"""Columns in nats per scored target, which are rescaled if tokenizers differ."""
NUMBERS = tuple(name for name, kind in RESULT.items() if kind in (pl.Int64(), pl.Float64()))


def _place(column: str) -> tuple[str, str]:
    """The field that a column is from, and the attribute within its part."""
    if column in FIELDS:
        return column, "median"
    part = next(name for name in FIELDS if column.startswith(f"{name}_"))
    return part, column.removeprefix(f"{part}_")


_PLACES = {column: _place(column) for column in RESULT}


def result_row(result: ResultDocument) -> Row:
    """A result's value in each column."""
    known = vars(result)
    parts = {name: vars(value) for name, value in known.items() if isinstance(value, Part)}
    return {
        column: parts[field].get(inside) if field in parts else known[field]
        for column, (field, inside) in _PLACES.items()
    }


METRICS = ("step", "tokens", "seconds", "loss", "validation_loss", "accuracy")
ITEM_LOSSES = tuple(ItemLoss.model_fields)


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
            return _lists(*self._store.read_many_losses(names, ITEM_LOSSES))

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
