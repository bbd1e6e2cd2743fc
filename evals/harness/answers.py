"""Cache of models' answers, so that no request is computed twice: after a kill, or if tasks overlap.

Each row is sealed, and the file names the model that gave the answers, by the checksum of its `sums.json`. Unsealed
rows of earlier versions are ignored, and their questions are asked again.
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

from store.files import StoreError, check_regular

_AT_ONCE = 500
"""Rows per query, and per transaction."""
_TABLE = "CREATE TABLE IF NOT EXISTS sealed (key BLOB PRIMARY KEY, answer TEXT, seal BLOB) WITHOUT ROWID"


_OF_MODEL = "CREATE TABLE IF NOT EXISTS model (sums TEXT)"


class AnswersError(StoreError):
    """A file of answers cannot be read."""


class Answers:
    """A file of answers. Keys are hashes over the owner and the question, so models in one file share no answers.

    path: None keeps them in memory. owner: everything but the question that determines an answer: the model's
    fingerprint, context and numerics. Raises AnswersError if the file is damaged, on opening or later.
    """

    def __init__(self, path: Path | None, owner: str) -> None:
        self._owner = owner.encode()
        self._path = path
        if path is not None:
            path.touch()  # sqlite would create a file that the group cannot write
        self._file = sqlite3.connect(path or ":memory:", timeout=60)
        with whole(self._path):
            self._file.execute(_TABLE)
        self._new: list[tuple[bytes, str, bytes]] = []

    def key(self, *question: Any) -> bytes:
        return hashlib.sha256(self._owner + json.dumps(question, sort_keys=True).encode()).digest()[:16]

    def known(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """Stored answers to these keys; keys without one are left out."""
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
    """Raises AnswersError if sqlite or a seal shows damage, OSError if the file cannot be used."""
    try:
        yield
    except sqlite3.OperationalError as error:  # a full disk, or a lock of another process: no damage
        raise OSError(f"{path}: {error}") from error
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # the latter two: a row does not match its seal
        raise AnswersError(f"{path} is damaged: remove it to let the model answer again") from error


def bind(path: Path, sums: str) -> None:
    """Name the model of a file of answers, which is created if it is missing. Raises AnswersError if it is another's.

    sums: checksum of the model's `sums.json`.
    """
    if path.exists():
        check_regular(path)
    path.touch()  # sqlite would create a file that the group cannot write
    with whole(path), closing(sqlite3.connect(path, timeout=60)) as file, file:
        file.execute(_OF_MODEL)
        _check_model(path, file, sums)
        file.execute("INSERT INTO model SELECT ? WHERE NOT EXISTS (SELECT * FROM model)", (sums,))


def _check_model(path: Path, file: sqlite3.Connection, sums: str) -> bool:
    """Whether the file names this model; False if it names none. Raises AnswersError if it names another."""
    named = [found for (found,) in file.execute("SELECT sums FROM model")]
    if set(named) - {sums}:
        raise AnswersError(f"{path} has answers of another model: remove it to let this one answer")
    return bool(named)


def check(path: Path, sums: str | None) -> bool:
    """Check a file of answers, if it exists, without changing it. False if it has unsealed answers, or does not name
    its model, as in earlier versions. Raises AnswersError, or OSError if it cannot be used.

    sums: checksum of the model's `sums.json`; None if there is no model.
    """
    if not path.exists():
        return True
    check_regular(path)
    mode = "rw" if os.access(path, os.W_OK) else "ro"  # "rw" rolls back a killed process's transaction
    with whole(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=60)) as file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "sealed" in tables:
            for row in file.execute("SELECT key, answer, seal FROM sealed"):
                _answer(*row)
        is_bound = "model" in tables and (sums is None or _check_model(path, file, sums))
        return tables <= {"sealed", "model"} and (is_bound or not tables)


def _answer(key: bytes, answer: str, seal: bytes) -> Any:
    """The parsed answer. Raises ValueError if the row does not match its seal."""
    if not isinstance(answer, str) or seal != _seal(key, answer):  # not str: in a file that was cut
        raise ValueError("the answer does not match its seal")
    return json.loads(answer)


def _seal(key: bytes, answer: str) -> bytes:
    return hashlib.sha256(key + answer.encode()).digest()[:8]
