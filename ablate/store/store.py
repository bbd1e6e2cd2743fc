"""Every path and every write of a store of runs, studies, corpora and step times (docs/architecture.md).

A document appears whole or not at all: it is written to a temporary file in the same folder,
flushed to the disk and renamed (`ablate.store.files`). Metrics and probes are appended line by line; a last
line that a kill tore is cut on reading (`ablate.store.logs`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from ablate.store import jsonfile, logs
from ablate.store.documents import EvalsDocument, SampleRecord
from ablate.store.files import StoreError, parsed, remove, replacing

if TYPE_CHECKING:
    import polars

SCHEMA = 1
Status = Literal["absent", "partial", "finished", "diverged"]
Document = dict[str, Any]

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
    "accuracy": float,
}
PROBE_TYPES = {"step": int, "probe": str, "layer": int, "name": str, "value": float}

EVALUATE_AGAIN = "remove it, and the run is evaluated again"

__all__ = ["SCHEMA", "LockedError", "Store", "StoreError", "read_json"]


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

    def probes_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "probes.ndjson"

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

    def answers_path(self, digest: str) -> Path:
        return self.run_dir(digest) / "answers.db"

    def study_dir(self, name: str, scale: str) -> Path:
        """Any name is one safe folder name: what is not `[A-Za-z0-9_.~-]` is percent-encoded."""
        return self.root / "studies" / f"{quote(name, safe='')}-{quote(scale, safe='')}"

    def study_path(self, name: str, scale: str) -> Path:
        return self.study_dir(name, scale) / "study.json"

    def report_path(self, name: str, scale: str) -> Path:
        return self.study_dir(name, scale) / "report.html"

    def search_dir(self, name: str, scale: str) -> Path:
        return self.root / "searches" / self.study_dir(name, scale).name

    def data_dir(self) -> Path:
        return self.root / "data"

    def calibration_path(self, digest: str) -> Path:
        return self.root / "calibration" / f"{_checked(digest)}.json"

    # Listings

    def runs(self) -> list[str]:
        """Digests of the runs whose identity is written, sorted."""
        return sorted(path.parent.name for path in self.root.glob("*/run.json"))

    def studies(self) -> list[Path]:
        """Folders of the studies that have been asked, sorted."""
        return sorted(path.parent for path in self.root.glob("studies/*/study.json"))

    def searches(self) -> list[Path]:
        """Folders of the searches that have found anything, sorted."""
        return sorted(path.parent for path in self.root.glob("searches/*/search.json"))

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

    def read_evals(self, digest: str, request: str) -> EvalsDocument | None:
        return jsonfile.read(self.evals_path(digest, request), EvalsDocument, EVALUATE_AGAIN)

    def write_evals(self, digest: str, request: str, found: EvalsDocument, samples: Sequence[SampleRecord]) -> None:
        jsonfile.write_lines(self.samples_path(digest, request), samples)
        jsonfile.write(self.evals_path(digest, request), found)

    def drop_incomplete_evals(self, digest: str, request: str) -> None:
        """Forget an evaluation that went without some tasks, so that it is made again: their data may be there now."""
        found = self.read_evals(digest, request)
        if found and found.skipped:
            self.evals_path(digest, request).unlink()

    def read_samples(self, digest: str, request: str) -> list[SampleRecord] | None:
        """One record per item of an evaluation; None where there are none."""
        path = self.samples_path(digest, request)
        if not path.exists():
            return None
        remedy = f"remove {self.evals_path(digest, request)}, and the run is evaluated again"
        return list(jsonfile.records(path, SampleRecord, remedy))

    def read_study(self, name: str, scale: str) -> Document | None:
        return read_json(self.study_path(name, scale))

    def read_calibration(self, digest: str) -> Document | None:
        return _owned(read_json(self.calibration_path(digest)), digest)

    def write_json(self, path: Path, document: Mapping[str, Any]) -> None:
        """Write one strict JSON document; NaN, infinities and foreign types raise StoreError."""
        try:
            text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{path}: not strict JSON: {error}") from error
        with self.replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def replacing(self, path: Path) -> AbstractContextManager[Path]:
        """A temporary path that takes the place of `path` on success (see `ablate.store.files`)."""
        return replacing(path)

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

    # Logs

    def append_metrics(self, digest: str, *records: logs.Record) -> None:
        """Append a line for each in one write, after cutting a torn one. Non-finite becomes null."""
        logs.append(self.metrics_path(digest), records)

    def append_probes(self, digest: str, records: Iterable[logs.Record]) -> None:
        """Append what was read at one step, in one write. Non-finite becomes null."""
        logs.append(self.probes_path(digest), records)

    def read_metrics(self, digest: str, only: Collection[str] = ()) -> polars.DataFrame:
        """Metrics in the order written, with nulls where a record lacks a column. `only` these columns, much faster."""
        types = {name: METRIC_TYPES[name] for name in only}
        return logs.frame(self.metrics_path(digest), types or METRIC_TYPES, whole=not only)

    def read_probes(self, digest: str) -> polars.DataFrame:
        """What probes read, in the order written: step, probe, layer (or null), name, value (or null)."""
        return logs.frame(self.probes_path(digest), PROBE_TYPES, whole=False)

    def last_step(self, digest: str) -> Document | None:
        """The last training record, from the end of the file alone; None where there is none."""
        return logs.last(self.metrics_path(digest), lambda record: "lr" in record)

    def truncate_logs(self, digest: str, step: int) -> None:
        """Drop what metrics and probes say after `step`: training resumed from its checkpoint writes it anew."""
        logs.truncate(self.metrics_path(digest), step)
        if self.probes_path(digest).exists():
            logs.truncate(self.probes_path(digest), step)

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
                remove(leftover)
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
    document = parsed(content)
    if not isinstance(document, dict):
        return None
    if document.get("schema") != SCHEMA:
        found = document.get("schema")
        raise StoreError(f"{path}: schema version {found!r}, but this ablate reads version {SCHEMA}")
    return document


def _owned(document: Document | None, digest: str) -> Document | None:
    if document is not None and document.get("digest") != digest:
        raise StoreError(f"{digest} holds a document of {document.get('digest')!r}")
    return document


def _checked(digest: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z_]+(-[0-9A-Za-z_]+)*", digest) or digest in {
        "studies",
        "searches",
        "data",
        "calibration",
    }:
        raise StoreError(f"{digest!r} cannot be a digest")
    return digest
