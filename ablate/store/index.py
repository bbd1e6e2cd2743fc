"""Indexes of a store: columns that were read from the files of its runs, so that a command on a hundred thousand runs
need not open as many files. An index is one file, made again at will.

It is never trusted over the files: a row holds while each file that it was read from has the inode, size and times
that it had both before and after it was read. Nobody can set a ctime, so a file that was written, replaced or copied
since has another; one that changed within a tick of the clock before it was read is not kept (`ablate.store.stamps`).
An index that is gone, damaged, of another version or not ours to read knows nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ablate.store import checksum
from ablate.store.documents.result import Ended, Outcome
from ablate.store.files import check_regular, replacing
from ablate.store.result_columns import RUN, Schema
from ablate.store.stamps import TICK_NS, clock, file_stamp, index_path

LEAST_NEW = 1000
"""New rows below which an index is not written: reading so few files takes no longer than writing."""
LEAST_SHARE = 1 / 8
"""And their share of the rows that it has."""

Stamps: TypeAlias = NDArray[np.int64]
"""Inode, size, mtime and ctime of a file of each run, or of several, one after the other: (runs, 4 · files)."""


def stamps(root: Path, names: Sequence[str], source: str) -> Stamps:
    """The present stamps of this file in each of these folders."""
    place = os.fspath(root)
    return np.array([file_stamp(f"{place}/{name}/{source}") for name in names], dtype=np.int64).reshape(-1, 4)


class Index:
    """Columns of one kind. sources: the files of a run that they are read from, the one that every row needs first."""

    def __init__(self, root: Path, kind: str, sources: Sequence[str], columns: Schema) -> None:
        self.root, self.sources = root, tuple(sources)
        self.path = index_path(root, kind)
        self.schema = pl.Schema({"name": pl.String(), "stamp": pl.Array(pl.Int64(), 4 * len(sources)), **columns})
        self._owner = kind
        self.known = self._read()

    def rows(self, names: Sequence[str], now: Stamps, read: Callable[[Sequence[str]], pl.DataFrame]) -> pl.DataFrame:
        """The columns of these runs, in order. now: stamps of their sources. read: columns of runs whose files are not
        known as they are now."""
        place, rows = self._unchanged(names, now)
        others = np.delete(np.arange(len(names)), place)
        in_a_row = len(rows) and (np.diff(rows) == 1).all()  # as a study's are: no copy
        found = self.known[int(rows[0]) : int(rows[-1]) + 1] if in_a_row else self.known[rows]
        if len(others):
            unknown = [names[each] for each in others.tolist()]
            ended = int((now[others, 1] > 0).sum())
            began = clock(self.path) if ended >= self._least else None
            keys = [pl.Series("name", unknown), pl.Series("stamp", now[others], self.schema["stamp"])]
            fresh = pl.DataFrame(keys).hstack(read(unknown)).select(self.schema.names()).cast(self.schema)
            found = pl.concat([found, fresh])[np.argsort(np.concatenate([place, others]))]
            if began is not None:  # of a store that may be written
                self._keep(fresh, now[others], began)
        return found.drop("name", "stamp")

    def _unchanged(self, names: Sequence[str], now: Stamps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the names whose files are as they were, and their rows."""
        if not self.known.height:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        row_of = {name: row for row, name in enumerate(self.known["name"].to_list())}
        rows = np.array([row_of.get(name, -1) for name in names], dtype=np.int64)
        place = np.flatnonzero(rows >= 0)
        same = (self.known["stamp"].to_numpy()[rows[place]] == now[place]).all(axis=1)
        return place[same], rows[place[same]]

    @property
    def _least(self) -> float:
        """New rows for which the index is written again."""
        return max(LEAST_NEW, LEAST_SHARE * self.known.height)

    def _keep(self, fresh: pl.DataFrame, before: Stamps, began: int) -> None:
        """Write the index with the rows whose files did not change while they were read, if these are enough.

        began: the time at which reading began, by the file system's clock.
        """
        newest = before.reshape(len(before), -1, 4)[:, :, 2:].max(axis=(1, 2))
        names = fresh["name"].to_list()
        after = np.hstack([stamps(self.root, names, source) for source in self.sources])
        unchanged = (before == after).all(axis=1)
        lasting = unchanged & (before[:, 1] > 0) & (before >= 0).all(axis=1) & (newest < began - TICK_NS)
        if lasting.sum() < self._least:
            return
        new = fresh.filter(pl.Series(lasting)).unique("name", maintain_order=True)
        there = os.listdir(self.root)  # noqa: PTH208 (names are enough)
        old = self.known.filter(pl.col("name").is_in(there), ~pl.col("name").is_in(new["name"].implode()))
        self.known = pl.concat([old, new])
        with suppress(OSError), replacing(self.path) as temporary:  # a full disk: files are read again
            self.known.write_ipc_stream(temporary)  # of which readers find the end, and the seal follows
            checksum.seal(temporary, self._owner)

    def _read(self) -> pl.DataFrame:
        nothing = pl.DataFrame(schema=self.schema)
        try:
            check_regular(self.path)
            with self.path.open("rb", buffering=0) as file:  # polars reads from where the descriptor is
                if not checksum.is_whole_file(file, self._owner):
                    return nothing
                file.seek(0)
                found = pl.read_ipc_stream(file)
        except OSError:
            return nothing
        except pl.exceptions.PolarsError:  # whole, so of a version that wrote something else
            return nothing
        return found if found.schema == self.schema else nothing


def results_index(root: Path) -> Index:
    """Results, with what `run.json` says of their runs."""
    return Index(root, "results", ("result.json", "run.json"), RUN)


class KnownOutcomes:
    """Outcomes of the runs that have ended, by the names of their folders. A torn result is none."""

    def __init__(self, root: Path) -> None:
        known = results_index(root).known.filter(pl.col("status").is_in(get_args(Ended)))
        self._rows = {name: row for row, name in enumerate(known["name"].to_list())}
        self._stamps = known["stamp"].to_numpy()[:, :4].tolist() if known.height else []
        self._statuses, self._losses = known["status"].to_list(), known["loss"].to_list()

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def outcome(self, name: str, stamp: tuple[int, ...]) -> Outcome | None:
        """The outcome in a result's file, if that is still as it was when it was read."""
        row = self._rows[name]
        return Outcome(self._statuses[row], self._losses[row]) if (*self._stamps[row],) == stamp else None
