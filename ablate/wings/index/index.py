"""Indexes of a store: columns cached from the files of its runs, so that a command on a hundred thousand runs need not
open as many files. An index is one file, and can be rebuilt at any time.

The files take precedence: a row is valid while each of its files has the inode, size and times that it had both before
and after it was read. No program can set a ctime, so a file that was written, replaced or copied since has another. A
file that changed within a clock tick before it was read is not kept (`store.stamps`). An index that is missing,
damaged, unreadable or of another version counts as empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from store import checksum
from store.documents.result import Ended, Outcome
from store.files import check_regular, replacing
from store.stamps import TICK_NS, clock, index_path
from store.tables import RESULTS, RUN, Schema, Stamps, stamps

LEAST_NEW = 1000
"""Least number of new rows for writing an index: reading fewer files takes no longer than writing."""
LEAST_SHARE = 1 / 8
"""Least ratio of new rows to those of the index, for writing it."""


class Index:
    """Columns of one kind. sources: the files of a run that they are read from, first the one that every row needs."""

    def __init__(self, root: Path, kind: str, sources: Sequence[str], columns: Schema) -> None:
        self.root, self.sources = root, tuple(sources)
        self.path = index_path(root, kind)
        self.schema = pl.Schema({"name": pl.String(), "stamp": pl.Array(pl.Int64(), 4 * len(sources)), **columns})
        self._owner = kind
        self.known = self._read()

    def rows(self, names: Sequence[str], now: Stamps, read: Callable[[Sequence[str]], pl.DataFrame]) -> pl.DataFrame:
        """Columns of these runs, in order. now: stamps of their sources. read: reads the columns of runs whose files
        are not in the index, or have changed."""
        place, rows = self._unchanged(names, now)
        others = np.delete(np.arange(len(names)), place)
        in_a_row = len(rows) and (np.diff(rows) == 1).all()  # as a study's are: a slice needs no copy
        found = self.known[int(rows[0]) : int(rows[-1]) + 1] if in_a_row else self.known[rows]
        if len(others):
            unknown = [names[each] for each in others.tolist()]
            ended = int((now[others, 1] > 0).sum())
            began = clock(self.path) if ended >= self._least else None
            keys = [pl.Series("name", unknown), pl.Series("stamp", now[others], self.schema["stamp"])]
            fresh = pl.DataFrame(keys).hstack(read(unknown)).select(self.schema.names()).cast(self.schema)
            found = pl.concat([found, fresh])[np.argsort(np.concatenate([place, others]))]
            if began is not None:  # enough new rows, and the store is writable
                self._keep(fresh, now[others], began)
        return found.drop("name", "stamp")

    def _unchanged(self, names: Sequence[str], now: Stamps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions in `names` of runs whose files are unchanged, and their rows in the index."""
        if not self.known.height:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        row_of = {name: row for row, name in enumerate(self.known["name"].to_list())}
        rows = np.array([row_of.get(name, -1) for name in names], dtype=np.int64)
        place = np.flatnonzero(rows >= 0)
        same = (self.known["stamp"].to_numpy()[rows[place]] == now[place]).all(axis=1)
        return place[same], rows[place[same]]

    @property
    def _least(self) -> float:
        """Least number of new rows for rewriting the index."""
        return max(LEAST_NEW, LEAST_SHARE * self.known.height)

    def _keep(self, fresh: pl.DataFrame, before: Stamps, began: int) -> None:
        """Add the rows whose files did not change while they were read, and write the index, if they are enough.

        before: stamps before reading. began: the time at which reading began, by the file system's clock, in ns.
        """
        newest = before.reshape(len(before), -1, 4)[:, :, 2:].max(axis=(1, 2))
        names = fresh["name"].to_list()
        after = np.hstack([stamps(self.root, names, source) for source in self.sources])
        unchanged = (before == after).all(axis=1)
        # Rows with a result (size > 0) and no unreadable file, whose last change precedes the reading by a tick.
        lasting = unchanged & (before[:, 1] > 0) & (before >= 0).all(axis=1) & (newest < began - TICK_NS)
        if lasting.sum() < self._least:
            return
        new = fresh.filter(pl.Series(lasting)).unique("name", maintain_order=True)
        there = os.listdir(self.root)  # noqa: PTH208 (names are enough)
        old = self.known.filter(pl.col("name").is_in(there), ~pl.col("name").is_in(new["name"].implode()))
        self.known = pl.concat([old, new])
        with suppress(OSError), replacing(self.path) as temporary:  # a full disk: files are read again
            self.known.write_ipc_stream(temporary)  # the stream marks its own end, so a seal may follow
            checksum.seal(temporary, self._owner)

    def _read(self) -> pl.DataFrame:
        nothing = pl.DataFrame(schema=self.schema)
        try:
            check_regular(self.path)
            with self.path.open("rb", buffering=0) as file:  # polars reads from the descriptor's position
                if not checksum.is_whole_file(file, self._owner):
                    return nothing
                file.seek(0)
                found = pl.read_ipc_stream(file)
        except OSError:
            return nothing
        except pl.exceptions.PolarsError:  # intact, so written by another version
            return nothing
        return found if found.schema == self.schema else nothing


class KnownOutcomes:
    """Indexed outcomes of ended runs, by folder name. A half-written result has none."""

    def __init__(self, root: Path) -> None:
        known = Index(root, "results", RESULTS, RUN).known.filter(pl.col("status").is_in(get_args(Ended)))
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
        """The indexed outcome, if `stamp` shows that the result's file has not changed since; else None."""
        row = self._rows[name]
        return Outcome(self._statuses[row], self._losses[row]) if (*self._stamps[row],) == stamp else None
