"""Every path and every write of a store of runs, studies and corpora (docs/architecture.md).

A document appears whole or not at all: it is written to a temporary file in the same folder,
flushed to the disk and renamed. Metrics are appended line by line; a last line that a kill tore is
cut on reading.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    import polars

SCHEMA = 1
Status = Literal["absent", "partial", "finished", "diverged"]
Document = dict[str, Any]

TAIL_BYTES = 4096
"""Enough of the end of a metrics file to hold its last training record."""

METRIC_TYPES = {
    "step": int,
    "tokens": int,
    "seconds": float,
    "loss": float,
    "lr": float,
    "grad_norm": float,
    "tokens_per_second": float,
    "validation_loss": float,
    "bits_per_byte": float,
}


class StoreError(Exception):
    """The store holds, or was given, something that it must not."""


class LockedError(StoreError):
    """Another process holds the run."""


class Store:
    """A folder of runs, studies and corpora; `root` need not exist yet."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    @classmethod
    def of_study(cls, study_dir: Path | str) -> Store:
        """The store that a study's folder lies in."""
        return cls(Path(study_dir).resolve().parent.parent)

    # Paths

    def run_dir(self, digest: str) -> Path:
        return self.root / _checked(digest)

    def run_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "run.json"

    def metrics_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "metrics.ndjson"

    def state_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "state.pt"

    def model_dir(self, digest: str) -> Path:
        return self.run_dir(digest) / "model"

    def result_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "result.json"

    def measure_path(self, digest: str, request: str) -> Path:
        return self.run_dir(digest) / f"measure-{_checked(request)}.json"

    def evals_path(self, digest: str, request: str) -> Path:
        return self.run_dir(digest) / f"evals-{_checked(request)}.json"

    def samples_path(self, digest: str, request: str) -> Path:
        return self.run_dir(digest) / f"evals-{_checked(request)}.samples.ndjson"

    def study_dir(self, name: str, scale: str) -> Path:
        """Any name is one safe folder name: what is not `[A-Za-z0-9_.~-]` is percent-encoded."""
        return self.root / "studies" / f"{quote(name, safe='')}-{quote(scale, safe='')}"

    def study_path(self, name: str, scale: str) -> Path:
        return self.study_dir(name, scale) / "study.json"

    def report_path(self, name: str, scale: str) -> Path:
        return self.study_dir(name, scale) / "report.html"

    def data_dir(self) -> Path:
        return self.root / "data"

    # Listings

    def runs(self) -> list[str]:
        """Digests of the runs whose identity is written, sorted."""
        return sorted(path.parent.name for path in self.root.glob("*/run.json"))

    def studies(self) -> list[Path]:
        """Folders of the studies that have been asked, sorted."""
        return sorted(path.parent for path in self.root.glob("studies/*/study.json"))

    def status(self, digest: str) -> Status:
        """`partial` means begun and not ended: it can be resumed, or begun again."""
        result = self.read_result(digest)
        if result is not None:
            return "diverged" if result["status"] == "diverged" else "finished"
        return "absent" if self.read_run(digest) is None else "partial"

    # Documents: None where there is no whole document, StoreError where it is not what it should be

    def read_run(self, digest: str) -> Document | None:
        return _owned(read_json(self.run_path(digest)), digest)

    def read_result(self, digest: str) -> Document | None:
        document = _owned(read_json(self.result_path(digest)), digest)
        if document is not None and document.get("status") not in {"finished", "diverged"}:
            raise StoreError(f"{self.result_path(digest)}: unknown status {document.get('status')!r}")
        return document

    def read_measure(self, digest: str, request: str) -> Document | None:
        return read_json(self.measure_path(digest, request))

    def read_evals(self, digest: str, request: str) -> Document | None:
        return read_json(self.evals_path(digest, request))

    def read_samples(self, digest: str, request: str) -> list[Document] | None:
        """One record per item of an evaluation; None where there are none."""
        path = self.samples_path(digest, request)
        if not path.exists():
            return None
        records = [_parsed(line) for line in path.read_bytes().splitlines()]
        if not all(isinstance(record, dict) for record in records):
            raise StoreError(f"{path}: not a file of samples")
        return records

    def read_study(self, name: str, scale: str) -> Document | None:
        return read_json(self.study_path(name, scale))

    def write_json(self, path: Path, document: Mapping[str, Any]) -> None:
        """Write one strict JSON document; NaN, infinities and foreign types raise StoreError."""
        try:
            text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}: not strict JSON: {error}") from error
        with self.replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @contextmanager
    def replacing(self, path: Path) -> Iterator[Path]:
        """Yield a temporary path for a file or a folder; on success it takes the place of `path`.

        A file replaces another atomically. A folder takes the place of one that is removed just
        before, so a folder counts only once a document written after it says so.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            yield temporary
            _sync_tree(temporary)
            if temporary.is_dir() and path.exists():
                shutil.rmtree(path)
            temporary.replace(path)
            _sync(path.parent)
        except BaseException:
            _remove(temporary)
            raise

    def drop_state(self, digest: str) -> None:
        """Forget the resumable state of a run that has ended."""
        self.state_path(digest).unlink(missing_ok=True)

    # The error that ended a worker

    def error_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "error.txt"

    def write_error(self, digest: str, summary: str, details: str) -> None:
        """Keep a one-line summary and the details of what ended a worker."""
        with self.replacing(self.error_path(digest)) as temporary:
            temporary.write_text(f"{summary}\n\n{details}", encoding="utf-8")

    def read_error(self, digest: str) -> str | None:
        """The summary of what ended the last worker on this run, or None when nothing did."""
        path = self.error_path(digest)
        return path.read_text(encoding="utf-8").split("\n", 1)[0] if path.exists() else None

    def drop_error(self, digest: str) -> None:
        """Forget it: a new worker begins."""
        self.error_path(digest).unlink(missing_ok=True)

    # Metrics

    def append_metrics(self, digest: str, record: Mapping[str, float | None]) -> None:
        """Append one line in one write, after cutting a torn one. Non-finite becomes null."""
        finite = {key: value if _is_strict(value) else None for key, value in record.items()}
        line = json.dumps(finite, allow_nan=False).encode() + b"\n"
        path = self.metrics_path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b", buffering=0) as file:
            _cut_torn_line(file)
            file.write(line)

    def read_metrics(self, digest: str) -> polars.DataFrame:
        """Metrics in the order written, with nulls where a record lacks a column."""
        import polars as pl  # noqa: PLC0415 (slow to import; most users of the store only write)

        records = [json.loads(line) for line in self._metric_lines(digest)]
        extra = sorted({key for record in records for key in record} - METRIC_TYPES.keys())
        types = METRIC_TYPES | dict.fromkeys(extra, float)
        return pl.DataFrame(records, schema=types, orient="row", strict=False)

    def last_step(self, digest: str) -> Document | None:
        """The last training record, from the end of the file alone; None where there is none."""
        path = self.metrics_path(digest)
        if not path.exists():
            return None
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
        records = (_parsed(line) for line in reversed(lines))
        return next((r for r in records if isinstance(r, dict) and "lr" in r), None)

    def truncate_metrics(self, digest: str, step: int) -> None:
        """Drop the records after `step`: training resumed from its checkpoint writes them anew."""
        lines = self._metric_lines(digest)
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        with self.replacing(self.metrics_path(digest)) as temporary:
            temporary.write_bytes(b"".join(line + b"\n" for line in kept))

    def _metric_lines(self, digest: str) -> list[bytes]:
        path = self.metrics_path(digest)
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        for number, line in enumerate(lines, start=1):
            if not isinstance(_parsed(line), dict):
                if number == len(lines):
                    return lines[:-1]
                raise StoreError(f"{path}:{number}: not a metrics record")
        return lines

    # Locks

    @contextmanager
    def lock(self, digest: str, blocking: bool = True) -> Iterator[None]:
        """Hold a run alone. The system frees the lock when its process dies, however it dies.

        Raises LockedError when not `blocking` and another holds it. Temporary files that a killed
        holder left are removed.
        """
        from filelock import Timeout, UnixFileLock  # noqa: PLC0415 (reading needs no lock)

        directory = self.run_dir(digest)
        directory.mkdir(parents=True, exist_ok=True)
        lock = UnixFileLock(directory / ".lock")
        try:
            lock.acquire(blocking=blocking)
        except Timeout as error:
            raise LockedError(f"run {digest} is being worked on by another process") from error
        try:
            for leftover in directory.glob(".*.tmp"):
                _remove(leftover)
            yield
        finally:
            lock.release()


def read_json(path: Path) -> Document | None:
    """The document at `path`; None when it is missing, empty or half-written.

    Raises StoreError on a whole document whose schema version is not known.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    document = _parsed(content)
    if not isinstance(document, dict):
        return None
    if document.get("schema") != SCHEMA:
        found = document.get("schema")
        raise StoreError(f"{path}: schema version {found!r}, but this ablate reads version {SCHEMA}")
    return document


def _parsed(content: bytes) -> Any:
    """The JSON value, or None for what is not strict JSON (a half-written file, zeroed blocks)."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except ValueError:
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not strict JSON")


def _owned(document: Document | None, digest: str) -> Document | None:
    if document is not None and document.get("digest") != digest:
        raise StoreError(f"run {digest} holds a document of run {document.get('digest')!r}")
    return document


def _checked(digest: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z_]+(-[0-9A-Za-z_]+)*", digest) or digest in {"studies", "data"}:
        raise StoreError(f"{digest!r} cannot be a digest")
    return digest


def _is_strict(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _cut_torn_line(file: IO[bytes]) -> None:
    """Truncate to the last line end. `file` is open for reading and appending."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for child in path.iterdir():
            _sync_tree(child)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
