"""optuna's journal with sealed lines (`ablate.store.seals`): a full disk or a flipped bit never passes for a trial."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from filelock import UnixFileLock
from optuna.storages.journal import BaseJournalBackend

from ablate.store import SearchFolder
from ablate.store.seals import Chain

Operation = dict[str, Any]
"""Entry of optuna's journal, as its own backend has it."""


class SealedJournal(BaseJournalBackend):
    """The operations on a search's trials, a line each. optuna's own backend reads them too, unchecked.

    Another lock than optuna's, one that the system frees when its holder is killed: those wait half a minute for a dead
    one, and are taken from one that is merely slow.
    """

    def __init__(self, folder: SearchFolder) -> None:
        self._log = folder.journal
        self._lock = UnixFileLock(folder.journal_lock_path)
        self._begin()

    def _begin(self) -> None:
        self._chain = Chain(self._log.owner)
        self._bytes, self._lines = 0, 0

    def read_logs(self, log_number_from: int) -> Iterator[Operation]:
        """The operations from a number on: only what was appended since the last call is read. Raises StoreError."""
        if log_number_from < self._lines:
            self._begin()
        for line in self._log.whole(self._unread()).split(b"\n")[:-1]:
            body = self._log.checked(self._chain, line, self._lines + 1)
            self._bytes, self._lines = self._bytes + len(line) + 1, self._lines + 1
            if self._lines > log_number_from:
                yield self._log.parsed(body, self._lines)

    def append_logs(self, logs: list[Operation]) -> None:
        with self._lock:
            self._log.add((json.dumps(log, separators=(",", ":")).encode() for log in logs), sync=True)

    def _unread(self) -> bytes:
        try:
            with self._log.path.open("rb") as file:
                file.seek(self._bytes)
                return file.read()
        except FileNotFoundError:
            return b""
