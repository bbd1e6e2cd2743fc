"""Storage of trials, and detection of trials whose command has died.

Any number of commands may search concurrently. Each holds a lock in the search's folder while it lives. A running trial
whose command's lock file exists but is free has lost its command, and is taken over by another. A trial whose owner has
no lock file here belongs to a command on another store.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, GrpcStorageProxy, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import TrialState

from ablate.wings.search.documents import SearchFolder
from ablate.wings.search.samplers import MissingPackageError, need
from store import AblateError
from store.files import check_regular, held
from store.seals import Chain

OWNER = "owner"


class StorageError(AblateError):
    """The storage of a search cannot be used."""


def open_storage(url: str | None, folder: SearchFolder) -> BaseStorage:
    """The journal in a search's folder, or the storage of a URL: `grpc://host:port`, else an SQLAlchemy database.

    Raises:
        StorageError: the storage cannot be opened.
        MissingPackageError: its driver is not installed.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    if url is None:
        return _open_journal(folder)
    if url.startswith("grpc://"):
        need("grpc", "grpcio", "--storage grpc://…")
        host, _, port = url.removeprefix("grpc://").partition(":")
        if not port.isdecimal():
            raise StorageError(f"--storage {shown(url)}: expected grpc://host:port")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return GrpcStorageProxy(host=host, port=int(port))
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        with held(folder.asking_lock_path):  # the first command to open a database creates its tables
            return RDBStorage(url)
    except ImportError as error:
        raise MissingPackageError(
            f"--storage {shown(url)}: no driver is installed (PostgreSQL's: pip install 'psycopg[binary]')"
        ) from error
    except Exception as error:  # whatever the database's driver raises
        reason = shown(str(error).replace(url, shown(url)).strip().split("\n")[0])
        raise StorageError(f"--storage {shown(url)}: {reason or type(error).__name__}") from error


def _open_journal(folder: SearchFolder) -> BaseStorage:
    folder.check_journal()
    try:
        return JournalStorage(SealedJournal(folder))
    except AblateError:
        raise
    except Exception as error:  # whatever optuna raises for inconsistent operations
        reason = f"its trials cannot be read ({type(error).__name__}: {error})"
        raise StorageError(f"{folder.journal_path}: {reason}: {folder.journal.remedy}") from error


def shown(url: str) -> str:
    """The URL with user and password masked, including passwords in parameters."""
    return re.sub(r"(\w*pass\w*=)[^&\s]*", r"\1***", re.sub(r"//.*@", "//***@", url))


@contextmanager
def opened_storage(url: str | None, folder: SearchFolder) -> Iterator[BaseStorage]:
    """`open_storage` as a context, which closes its connections. Raises StorageError if the database fails later."""
    storage = open_storage(url, folder)
    lost = sys.modules["grpc"].RpcError if isinstance(storage, GrpcStorageProxy) else StorageInternalError
    try:
        yield storage
    except lost as error:
        details = error.details() if hasattr(error, "details") else error.__cause__
        said = str(details or error).strip() or type(error).__name__
        raise StorageError(f"--storage {shown(str(url))}: {shown(said.splitlines()[0])}") from error
    finally:
        if isinstance(storage, RDBStorage):
            storage.remove_session()
            storage.engine.dispose()


class Owner:
    """This command as the owner of trials."""

    def __init__(self, folder: SearchFolder) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._owners = folder.owners_dir
        self._asking = folder.asking_lock_path

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Hold this command's lock. The lock file stays, so that trials still running can be taken over later."""
        with held(self._owners / self.name):
            yield

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Exclude the other commands on this machine, so that a new trial has an owner before they can see it."""
        with held(self._asking):
            yield

    def take_over(self, study: optuna.Study) -> list[optuna.Trial]:
        """Take over the running trials whose command has died or is unknown."""
        with self.asking():
            found = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.RUNNING]
            gone = {path.name for path in self._owners.iterdir() if _is_free(path)}
            ours = [trial for trial in found if trial.user_attrs.get(OWNER) in {None, *gone}]
            trials = [optuna.Trial(study, trial._trial_id) for trial in ours]
            for trial in trials:
                self.sign(trial)
            for name in gone:
                (self._owners / name).unlink()
        return trials

    def sign(self, trial: optuna.Trial) -> None:
        trial.set_user_attr(OWNER, self.name)


def _is_free(path: Path) -> bool:
    try:
        with held(path, blocking=False):
            return True
    except BlockingIOError:
        return False


Operation = dict[str, Any]
"""Entry of optuna's journal, in the format of optuna's own backend."""


class SealedJournal(BaseJournalBackend):
    """Journal of the operations on a search's trials, a line each, with checksums. optuna's own backend can read the
    file too, without checking.

    Uses a lock that the operating system frees when its holder is killed. optuna's own locks wait half a minute for a
    dead holder, and are taken from a slow one.
    """

    def __init__(self, folder: SearchFolder) -> None:
        self._log = folder.journal
        self._lock = folder.journal_lock_path
        self._begin()

    def _begin(self) -> None:
        self._chain = Chain(self._log.owner)
        self._bytes, self._lines = 0, 0

    def read_logs(self, log_number_from: int) -> Iterator[Operation]:
        """The operations from a number on; reads only the bytes appended since the last call. Raises StoreError."""
        if log_number_from < self._lines:
            self._begin()
        for line in self._log.whole(self._unread()).split(b"\n")[:-1]:
            body = self._log.checked(self._chain, line, self._lines + 1)
            self._bytes, self._lines = self._bytes + len(line) + 1, self._lines + 1
            if self._lines > log_number_from:
                yield self._log.parsed(body, self._lines)

    def append_logs(self, logs: list[Operation]) -> None:
        with held(self._lock):
            self._log.add((json.dumps(log, separators=(",", ":")).encode() for log in logs), sync=True)

    def _unread(self) -> bytes:
        try:
            check_regular(self._log.path)
            with self._log.path.open("rb") as file:
                file.seek(self._bytes)
                return file.read()
        except FileNotFoundError:
            return b""
