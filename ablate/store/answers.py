"""Stored answers of models, so that no request is computed twice: after a kill, or if tasks overlap.

Each row is sealed. Those of versions before this are not, and are left alone: what they say is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ablate.store.files import StoreError, check_regular

_AT_ONCE = 500
"""Rows in a query, and in a transaction."""
_TABLE = "CREATE TABLE IF NOT EXISTS sealed (key BLOB PRIMARY KEY, answer TEXT, seal BLOB) WITHOUT ROWID"


class AnswersError(StoreError):
    """A file of answers cannot be read."""


class Answers:
    """A file of answers. A key begins with whose answers they are, so that models may share a file and share nothing.

    path: None keeps them in memory. owner: all that decides an answer but for the question: the model's fingerprint,
    its context, its numerics. Raises AnswersError where the file is damaged, while it is open too.
    """

    def __init__(self, path: Path | None, owner: str) -> None:
        self._owner = owner.encode()
        self._path = path
        if path is not None:
            path.touch()  # sqlite itself lets nobody else of the group write
        self._file = sqlite3.connect(path or ":memory:", timeout=60)
        with whole(self._path):
            self._file.execute(_TABLE)
        self._new: list[tuple[bytes, str, bytes]] = []

    def key(self, *question: Any) -> bytes:
        return hashlib.sha256(self._owner + json.dumps(question, sort_keys=True).encode()).digest()[:16]

    def known(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """The answers that the file has."""
        found: dict[bytes, Any] = {}
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            places = ", ".join("?" * len(some))
            with whole(self._path):
                rows = self._file.execute(f"SELECT key, answer, seal FROM sealed WHERE key IN ({places})", some)
                found.update((key, _answer(key, answer, seal)) for key, answer, seal in rows)
        return found

    def add(self, key: bytes, answer: Any) -> None:
        text = json.dumps(answer)
        self._new.append((key, text, _seal(key, text)))
        if len(self._new) >= _AT_ONCE:
            self._write()

    def _write(self) -> None:
        with whole(self._path), self._file:
            self._file.executemany("INSERT OR REPLACE INTO sealed VALUES (?, ?, ?)", self._new)
        self._new = []

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()
        self._file.close()


@contextmanager
def whole(path: Path | None) -> Iterator[None]:
    """Raises AnswersError where sqlite finds a file damaged, or says why it cannot be used."""
    try:
        yield
    except sqlite3.OperationalError as error:  # the disk is full, or another process keeps the file: no damage
        raise OSError(f"{path}: {error}") from error
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # the latter two: a row is not what was sealed
        raise AnswersError(f"{path} is damaged: remove it to let the model answer again") from error


def check(path: Path) -> bool:
    """Read a file of answers, where there is one, and change nothing. Raises AnswersError. False where a version before
    this wrote some, which have no seals."""
    if not path.exists():
        return True
    check_regular(path)
    mode = "rw" if os.access(path, os.W_OK) else "ro"  # "rw" takes back what a killed process left half-written
    with whole(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=60)) as file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "sealed" in tables:
            for row in file.execute("SELECT key, answer, seal FROM sealed"):
                _answer(*row)
        return tables <= {"sealed"}


def _answer(key: bytes, answer: str, seal: bytes) -> Any:
    """Raises ValueError where the row is not what was written."""
    if seal != _seal(key, answer):
        raise ValueError("another answer than was sealed")
    return json.loads(answer)


def _seal(key: bytes, answer: str) -> bytes:
    return hashlib.sha256(key + answer.encode()).digest()[:8]
