"""Stored answers of models, so that no request is computed twice: after a kill, or if tasks overlap."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ablate.store import StoreError
from zoo.identity import canonical
from zoo.model import Decoder

_AT_ONCE = 500
"""Rows in a query, and in a transaction."""


def fingerprint(model: Decoder) -> str:
    """sha256 over the spec and every weight of a model: two checkpoints have one only where they compute the same."""
    digest = hashlib.sha256(canonical(model.spec.identity()).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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
        self._file = sqlite3.connect(path or ":memory:", timeout=60)
        with self._whole():
            self._file.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT) WITHOUT ROWID")
        self._new: list[tuple[bytes, str]] = []

    def key(self, *question: Any) -> bytes:
        return hashlib.sha256(self._owner + json.dumps(question, sort_keys=True).encode()).digest()[:16]

    def known(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """The answers that the file has."""
        found: dict[bytes, Any] = {}
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            places = ", ".join("?" * len(some))
            with self._whole():
                rows = self._file.execute(f"SELECT key, answer FROM answers WHERE key IN ({places})", some)
                found.update((key, json.loads(answer)) for key, answer in rows)
        return found

    def add(self, key: bytes, answer: Any) -> None:
        self._new.append((key, json.dumps(answer)))
        if len(self._new) >= _AT_ONCE:
            self._write()

    def _write(self) -> None:
        with self._whole(), self._file:
            self._file.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", self._new)
        self._new = []

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError:  # the disk is full, or another process keeps the file: no damage
            raise
        except (sqlite3.DatabaseError, ValueError) as error:  # a ValueError: an answer is no JSON
            raise AnswersError(f"{self._path} is damaged: remove it to let the model answer again") from error

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()
        self._file.close()
