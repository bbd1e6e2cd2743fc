"""The files of a run in a store: its documents, logs and state. Each has a reader and a writer here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from store import checksum, jsonfile
from store.claims import STALL_SECONDS, FolderClaim, claimed, last_beat
from store.documents import (
    CalibrationDocument,
    EvalsDocument,
    ItemLoss,
    LogSums,
    MeasureDocument,
    MetricsRecord,
    ProbeRecord,
    ResultDocument,
    RunDocument,
    SampleRecord,
)
from store.files import StoreError, check_regular, read_regular, remove_leftovers, write_text
from store.logs import Record, StepLog, Whole, together
from store.paths import Paths

if TYPE_CHECKING:
    import polars

Owned = TypeVar("Owned", RunDocument, ResultDocument, CalibrationDocument)


class _KnownResult(NamedTuple):
    """A result as it was read when its file had this inode, size and mtime."""

    path: Path
    stamp: tuple[int, int, int]
    document: ResultDocument | None


class RunFiles(Paths):
    """The files of runs, by digest. A reader returns None if there is no complete document, and raises StoreError if it
    is damaged or misplaced."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._place = os.fspath(root)
        self._results: dict[str, _KnownResult] = {}
        """Cache of results by digest."""

    @contextmanager
    def claim(self, digest: str, stall_seconds: float = STALL_SECONDS, blocking: bool = True) -> Iterator[FolderClaim]:
        """Hold a run exclusively (`store.claims`), and remove temporary files of a killed holder.

        Raises LockedError if not `blocking` and another process holds it, and LostClaimError from the block if another
        has taken over.
        """
        directory = self.run_dir(digest)
        with claimed(directory, stall_seconds, blocking) as claim:
            remove_leftovers(directory)
            yield claim

    # Identity and result

    def read_run(self, digest: str) -> RunDocument | None:
        path, remedy = self.run_path(digest), self._train_again(digest)
        return self._owned(path, jsonfile.read(path, RunDocument, remedy), digest, remedy)

    def write_run(self, run: RunDocument) -> None:
        jsonfile.write(self.run_path(run.digest), run)

    def read_result(self, digest: str) -> ResultDocument | None:
        """The result, read again only if its file has changed: every log of the run is checked against it."""
        known = self._results.get(digest)
        path = known.path if known else self.result_path(digest)
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        stamp = found.st_ino, found.st_size, found.st_mtime_ns
        if known is None or known.stamp != stamp:
            remedy = self._train_again(digest)
            document = self._owned(path, jsonfile.read(path, ResultDocument, remedy), digest, remedy)
            known = self._results[digest] = _KnownResult(path, stamp, document)
        return known.document

    def write_result(self, result: ResultDocument, losses: Sequence[ItemLoss] = ()) -> None:
        """Write the final loss by document, if any, then the result with checksums of the run's logs."""
        digest = result.digest
        if losses:
            jsonfile.write_lines(self.losses_path(digest), losses)
        files = (self.metrics_path(digest), self.probes_path(digest), self.losses_path(digest))
        found = LogSums(**{path.stem: checksum.of_file(path) for path in files if path.exists()})
        jsonfile.write(self.result_path(digest), result.model_copy(update={"sums": found}))

    def _owned(self, path: Path, document: Owned | None, digest: str, remedy: str) -> Owned | None:
        if document is not None and document.digest != digest:
            raise StoreError(f"{path}: digest: expected {digest!r}, not {document.digest!r}: {remedy}")
        return document

    def _train_again(self, digest: str) -> str:
        return f"remove {self.run_dir(digest)} to train the run again"

    def model_again(self, digest: str) -> str:
        """The remedy for a damaged model."""
        run = self.read_run(digest)
        return f"remove {self.run_dir(digest)} to {'import the model' if run and run.imported else 'train it'} again"

    # Measurements and evaluations

    def read_measure(self, digest: str, request: str) -> MeasureDocument | None:
        remedy = "remove it to measure the run again"
        return jsonfile.read(self.measure_path(digest, request), MeasureDocument, remedy)

    def write_measure(self, digest: str, request: str, found: MeasureDocument) -> None:
        jsonfile.write(self.measure_path(digest, request), found)

    def measurements(self, request: str) -> Iterator[MeasureDocument]:
        """Measurements of this request, over all runs."""
        return filter(None, (self.read_measure(digest, request) for digest in self._having("measure-{}.json", request)))

    def read_evals(self, digest: str, request: str) -> EvalsDocument | None:
        remedy = "remove it to evaluate the run again"
        return jsonfile.read(self.evals_path(digest, request), EvalsDocument, remedy)

    def write_evals(self, digest: str, request: str, found: EvalsDocument, samples: Sequence[SampleRecord]) -> None:
        path = self.samples_path(digest, request)
        jsonfile.write_lines(path, samples)
        found = found.model_copy(update={"samples_sha256": checksum.of_file(path)})
        jsonfile.write(self.evals_path(digest, request), found)

    def drop_incomplete_evals(self, digest: str, request: str) -> None:
        """Remove an evaluation that skipped tasks, so that it is repeated: their data may be available now."""
        found = self.read_evals(digest, request)
        if found and found.skipped:
            self.evals_path(digest, request).unlink()

    def all_evals(self, digest: str) -> list[EvalsDocument]:
        """All evaluations of a run, in the order in which they ended."""
        paths = sorted(self.run_dir(digest).glob("evals-*.json"), key=lambda path: path.stat().st_mtime_ns)
        found = (self.read_evals(digest, path.stem.removeprefix("evals-")) for path in paths)
        return [document for document in found if document is not None]

    def evaluations(self, request: str) -> Iterator[EvalsDocument]:
        """Evaluations of this request, over all runs."""
        return filter(None, (self.read_evals(digest, request) for digest in self._having("evals-{}.json", request)))

    def _having(self, name: str, request: str) -> Iterator[str]:
        """Digests of the runs that have a document of this name."""
        return (path.parent.name for path in self.root.glob(f"*/{name.format(request)}"))

    def read_samples(self, digest: str, request: str) -> list[SampleRecord] | None:
        """One record per item of an evaluation; None if there are none."""
        path, scores = self.samples_path(digest, request), self.read_evals(digest, request)
        remedy = f"remove {self.evals_path(digest, request)} to evaluate the run again"
        log = Whole(path, "", remedy, SampleRecord, scores.samples_sha256 if scores else None)
        return list(log.records()) if log.sha256 or path.exists() else None

    # Errors of workers, and resumable state

    def write_error(self, digest: str, summary: str, details: str) -> None:
        """Store a one-line summary and the details of the error that ended a worker."""
        write_text(self.error_path(digest), f"{summary}\n\n{details}")

    def read_error(self, digest: str) -> str | None:
        """The summary of the error that ended the last worker on this run; None if there was none."""
        found = self._error_text(digest)
        return None if found is None else found.split("\n", 1)[0]

    def read_traceback(self, digest: str) -> str:
        """The details of that error; empty if there was none."""
        return (self._error_text(digest) or "").partition("\n\n")[2]

    def _error_text(self, digest: str) -> str | None:
        try:
            return read_regular(self.error_path(digest)).decode(errors="replace")
        except FileNotFoundError:
            return None

    def drop_error(self, digest: str) -> None:
        """Remove that error, for a new worker."""
        self.error_path(digest).unlink(missing_ok=True)

    def check_state(self, digest: str, path: Path | None = None) -> None:
        """Raises StoreError if a state of a run, by default the one to resume from, is damaged, or of another run."""
        path = path or self.state_path(digest)
        if path.exists():
            check_regular(path)
        if path.exists() and not checksum.is_whole(path, path.parent.name):
            raise StoreError(f"{path} is damaged, or belongs to another run: remove it to start the run again")

    def drop_state(self, digest: str) -> None:
        """Remove the resumable state of a run that has ended."""
        self.state_path(digest).unlink(missing_ok=True)

    def last_beat(self, digest: str) -> float:
        """Time of the last heartbeat of a worker on a run, in seconds since 1970; 0 if none works on it."""
        return last_beat(f"{self._place}/{self.run_name(digest)}")

    # Logs

    def append_metrics(self, digest: str, *records: MetricsRecord) -> None:
        """Append a line for each record in one write, after cutting off a torn one."""
        self.metrics_log(digest).append(records)

    def append_probes(self, digest: str, records: Iterable[ProbeRecord]) -> None:
        """Append the records of one step, in one write."""
        self.probes_log(digest).append(records)

    def read_metrics(self, digest: str, only: Collection[str] = ()) -> polars.DataFrame:
        """Metrics in the order written, with nulls for absent fields. only: read just these columns, much faster."""
        return self.checked(digest, self.metrics_log(digest)).frame(only)

    def read_many_metrics(self, digests: Sequence[str], only: Collection[str]) -> tuple[polars.DataFrame, list[int]]:
        """These columns of the metrics of many runs, concatenated, and the number of records of each run."""
        return together([self.checked(digest, self.metrics_log(digest)) for digest in digests], only)

    def read_probes(self, digest: str) -> polars.DataFrame:
        """Records of probes, in the order written."""
        return self.checked(digest, self.probes_log(digest)).frame()

    def has_probes(self, digest: str) -> bool:
        """Whether a run has a log of probes."""
        return self.probes_path(digest).exists()

    def last_step(self, digest: str) -> MetricsRecord | None:
        """The last training record, read from the end of the file only; None if there is none."""
        return self.metrics_log(digest).last(lambda record: "lr" in record.model_fields_set)

    def read_losses(self, digest: str) -> list[ItemLoss] | None:
        """The final loss by document or example; None if there is none."""
        log = self._losses(digest)
        return list(log.records()) if log.sha256 or log.path.exists() else None

    def read_many_losses(self, digests: Sequence[str], only: Collection[str]) -> tuple[polars.DataFrame, list[int]]:
        """These columns of the final losses of many runs, concatenated, and the number of records of each run."""
        return together([self._losses(digest) for digest in digests], only)

    def log_seals(self, digest: str) -> dict[str, str]:
        """Last seals of the logs that a run's saved state refers to, by name."""
        seals = {log.path.stem: log.last_seal() for log in (self.metrics_log(digest), self.probes_log(digest))}
        return {name: seal for name, seal in seals.items() if seal is not None}

    def check_logs(self, digest: str, seals: Mapping[str, str]) -> None:
        """Raises StoreError if logs lack lines that they had when a state was saved."""
        for log in (self.metrics_log(digest), self.probes_log(digest)):
            if log.path.stem in seals and log.lacks(seals[log.path.stem]):
                raise StoreError(f"{log.path} lacks lines that it had at the last checkpoint: {log.remedy}")

    def truncate_logs(self, digest: str, step: int) -> None:
        """Drop metrics and probes after `step`: training resumed from its checkpoint writes them again."""
        self.metrics_log(digest).truncate(step)
        if self.probes_path(digest).exists():
            self.probes_log(digest).truncate(step)

    def metrics_log(self, digest: str) -> StepLog[MetricsRecord]:
        return StepLog(self.metrics_path(digest), digest, self._train_again(digest), MetricsRecord)

    def probes_log(self, digest: str) -> StepLog[ProbeRecord]:
        return StepLog(self.probes_path(digest), digest, self._train_again(digest), ProbeRecord)

    def _losses(self, digest: str) -> Whole[ItemLoss]:
        return Whole(self.losses_path(digest), "", self._train_again(digest), ItemLoss, self._sum(digest, "losses"))

    def checked(self, digest: str, log: StepLog[Record]) -> StepLog[Record]:
        """A log of a run, with its checksum from the run's result, if the run has ended."""
        return replace(log, sha256=self._sum(digest, log.path.stem))

    def _sum(self, digest: str, log: str) -> str | None:
        result = self.read_result(digest)
        return getattr(result.sums, log) if result else None
