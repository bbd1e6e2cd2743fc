"""Every write of a store of runs, studies, searches, corpora and step times (docs/store.md), and a look at like runs.

Documents are written atomically: to a temporary file in the same folder, which is flushed to the disk and renamed
(`store.files`). Metrics and probes are appended line by line; a last line that a kill tore is dropped on reading
(`store.logs`). Like runs tell of a study's runs: those of the same arms, and those of like size, length and data.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from store import jsonfile
from store.documents import (
    CalibrationDocument,
    ImportDocument,
    JudgedDocument,
    LedgerRecord,
    MergedRecord,
    StudyArm,
    StudyDocument,
    TuningDocument,
)
from store.documents.result import Outcome
from store.documents.shell import store_option
from store.documents.study import UNJUDGED
from store.extensions import module_of
from store.files import StoreError
from store.folders import StudyFolder
from store.logs import LogFile
from store.run_files import RunFiles
from store.stamps import file_stamp

Status = Literal["absent", "partial", "finished", "diverged"]


class Store(RunFiles):
    """A folder of runs, studies and corpora; `root` need not exist yet."""

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        self._merged: tuple[tuple[int, ...], Mapping[str, MergedRecord]] | None = None
        """The records of `merged`, with the stamp of the log that they are from."""

    @classmethod
    def of_study(cls, study_dir: Path | str) -> Store:
        """The store that contains the folder of a study or a search."""
        return cls(Path(study_dir).resolve().parent.parent)

    @property
    def option(self) -> str:
        """The option for this store in a suggested command: `--store DIR`; empty for runs/ in the working directory."""
        return store_option(self.root)

    # Listings

    @property
    def exists(self) -> bool:
        """Whether this is the folder of a store in which a study was planned, or a model imported."""
        return any((self.root / name).is_dir() for name in ("studies", "imports"))

    def runs(self) -> list[str]:
        """Sorted digests of the runs that have a run.json."""
        if not (self.root.is_dir() and os.access(self.root, os.R_OK)):
            return []
        names = os.listdir(self.root)  # noqa: PTH208 (a path for each of a hundred thousand takes seconds)
        return sorted(name for name in names if os.path.exists(f"{self._place}/{name}/run.json"))  # noqa: PTH110

    def closed(self) -> list[Path]:
        """Sorted folders, possibly of runs, that another user has made private."""
        folders = (path for path in self.root.glob("[!.]*") if path.is_dir())
        return sorted(path for path in folders if not os.access(path, os.R_OK | os.X_OK))

    def logged(self) -> list[str]:
        """Digests of the runs that a worker has begun on, sorted."""
        return sorted(path.parent.name for path in self.root.glob("*/log.txt"))

    def studies(self) -> list[StudyFolder]:
        """Folders of planned studies, sorted."""
        return [folder for path in sorted(self.root.glob("studies/*")) if (folder := StudyFolder(path)).exists]

    def study_documents(self) -> Iterator[StudyDocument]:
        """Documents of the planned studies."""
        return filter(None, (folder.read() for folder in self.studies()))

    def readable_studies(self) -> Iterator[StudyDocument]:
        """Documents of the planned studies but for damaged ones, which their own pages and `ablate check` name."""
        for folder in self.studies():
            try:
                study = folder.read()
            except StoreError:
                continue
            if study is not None:
                yield study

    def tuning(self) -> Iterator[TuningDocument]:
        """Studies that tune their arms, or were stopped while they did."""
        folders = (StudyFolder(path.parent) for path in sorted(self.root.glob("studies/*/tuning.json")))
        return filter(None, (folder.read_tuning() for folder in folders))

    def imports(self) -> list[str]:
        """Names of the models that were imported, sorted."""
        return sorted(unquote(path.stem) for path in self.root.glob("imports/*.json"))

    def ledgers(self) -> list[str]:
        """Names of the studies that were judged, sorted."""
        return self.logs_in("ledger")

    def logs_in(self, folder: str) -> list[str]:
        """Names of the logs in a folder. Raises OSError if it may not be read: decisions account for all of them."""
        try:
            names = os.listdir(self.root / folder)  # noqa: PTH208 (a glob takes a folder that is closed for empty)
        except FileNotFoundError:
            return []
        return sorted(unquote(name.removesuffix(".ndjson")) for name in names if name.endswith(".ndjson"))

    # Outcomes of runs

    def status(self, digest: str) -> Status:
        """Status of a run. `partial`: begun and not ended, so that it can be resumed, or restarted."""
        found = self.outcome(digest)
        if found is not None:
            return found.status
        return "absent" if self.read_run(digest) is None else "partial"

    def outcome(self, digest: str) -> Outcome | None:
        """Status and final loss of a run, from an index if it is current, else from the result; None if not ended."""
        if self._known_outcomes and digest in self._known_outcomes:
            known: Outcome | None = self._known_outcomes.outcome(
                digest, file_stamp(f"{self._place}/{digest}/result.json")
            )
            if known is not None:
                return known
        result = self.read_result(digest)
        return None if result is None else Outcome(result.status, result.loss)

    @cached_property
    def _known_outcomes(self) -> Any:
        """Outcomes by digest from an index that a wing keeps; None if there is none."""
        wing = module_of(__name__)
        return None if wing is None else wing.known_outcomes(self.root)

    # Step times, imported models, runs of other stores

    def calibrations(self) -> list[str]:
        """Digests of the measured step times, sorted."""
        return sorted(path.stem for path in self.root.glob("calibration/*.json"))

    def read_calibration(self, digest: str) -> CalibrationDocument | None:
        path, remedy = self.calibration_path(digest), "remove it to measure the step time again"
        return self._owned(path, jsonfile.read(path, CalibrationDocument, remedy), digest, remedy)

    def write_calibration(self, found: CalibrationDocument) -> None:
        jsonfile.write(self.calibration_path(found.digest), found)

    def read_import(self, name: str) -> ImportDocument | None:
        path = self.import_path(name)
        return jsonfile.read(path, ImportDocument, "remove it, and import the model again")

    def write_import(self, found: ImportDocument) -> None:
        jsonfile.write(self.import_path(found.name), found)

    def merged(self) -> Mapping[str, MergedRecord]:
        """The last merge of each run that came in an archive, by its digest. Read again only if the log has changed."""
        stamp = file_stamp(str(self.merged_log.path))
        if self._merged is None or self._merged[0] != stamp:
            self._merged = stamp, {record.run: record for record in self.merged_log.records()}
        return self._merged[1]

    # Judgements

    def read_ledger(self, name: str) -> tuple[LedgerRecord, ...]:
        """Judgements for the question of the study of that name, in the order written. Raises StoreError if the ledger
        lacks one that a page shows."""
        ledger = self.ledger(name)
        for path in sorted(self.root.glob(f"studies/{quote(name, safe='')}-*/judged.json")):
            folder = StudyFolder(path.parent)
            judged = folder.read_judged()
            if judged is not None and judged.study == name and ledger.lacks(judged.seal):
                raise StoreError(
                    f"{ledger.path} lacks a judgement that {folder.report_path} shows: restore it, since verdicts"
                    f" account for earlier judgements (to begin a new ledger anyway, remove {folder.judged_path})"
                )
        return tuple(ledger.records())

    def keep_judged(self, name: str, scale: str) -> None:
        """Record the ledger's last judgement beside the study whose page depends on it."""
        folder, seal = self.study(name, scale), self.ledger(name).last_seal()
        known = folder.read_judged()
        if seal is not None and (known is None or known.seal != seal):
            jsonfile.write(folder.judged_path, JudgedDocument(study=name, seal=seal))

    def ledger(self, name: str) -> LogFile[LedgerRecord]:
        remedy = "restore the file, since verdicts account for earlier judgements"
        return LogFile(self.ledger_path(name), name, remedy, LedgerRecord)


ALIKE = 2.0
"""Runs are alike if their size and their length differ by at most this factor."""
STUDIES_READ = 50
"""Most studies of a store that are read."""


@dataclass(frozen=True)
class Likeness:
    """Conditions of a study's runs: non-embedding parameters and steps of its baseline, and the digests of its data."""

    parameters: float
    steps: float
    data: frozenset[str | None]

    def has(self, base: StudyArm) -> bool:
        """Whether a baseline's runs are of like size and length, on the same data."""
        near = _near(base.length.parameters, self.parameters) and _near(base.steps, self.steps)
        return near and base.data in self.data


def like_tables(store: Store, like: Likeness, without: Collection[str]) -> Iterator[Mapping[str, Mapping[int, float]]]:
    """Losses by arm and seed of each judged study of like runs. without: digests of runs that are left out."""
    for study in islice(store.readable_studies(), STUDIES_READ):
        if study.scale not in UNJUDGED and like.has(study.baseline_arm):
            table = {arm.name: _losses(store, arm, without) for arm in study.arms}
            if any(table.values()):
                yield table


def shared_runs(store: Store, study: StudyDocument) -> dict[str, dict[int, float]]:
    """Runs of a study's baseline on other seeds, in other studies: losses by study and seed, infinite for a failed run.

    The baseline is the same if its identity is, which covers all but the seed that determines its losses. A study with
    another arm in common asks the same question of other seeds, and is judged by itself.
    """
    own = {arm.identity for arm in study.arms}
    base = study.baseline_arm
    seen, found = {run.seed for run in base.runs}, {}
    for other in store.readable_studies():
        same = [arm for arm in other.arms if arm.identity in own]
        if (other.name, other.scale) == (study.name, study.scale) or [arm.identity for arm in same] != [base.identity]:
            continue
        losses = {seed: loss for seed, loss in _losses(store, same[0], ()).items() if seed not in seen}
        if losses:
            found[f"{other.name}@{other.scale}"] = losses
            seen |= losses.keys()
    return found


def _losses(store: Store, arm: StudyArm, without: Collection[str]) -> dict[int, float]:
    """Losses by seed of an arm's runs that ended; infinite for one that failed."""
    ended = {run.seed: store.outcome(run.digest) for run in arm.runs if run.digest not in without}
    return {
        seed: found.loss if found.status == "finished" and found.loss is not None else math.inf
        for seed, found in ended.items()
        if found is not None
    }


def _near(one: float, other: float) -> bool:
    return bool(one and other) and max(one / other, other / one) <= ALIKE
