"""Full check of a store: reads every document, log, corpus, model and checkpoint, and compares it with its checksum."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ablate.running.request import left_behind
from ablate.wings.archive.whole_folders import WholeFolders, stamp
from evals.harness import answers
from store import checksum, stamps
from store.documents.study import UNJUDGED
from store.extensions import modules_of
from store.files import StoreError, read_regular
from store.folders import DataFolder, StudyFolder
from store.paths import FOLDERS
from store.seals import SealedLog
from store.store import Store

OF_A_RUN = ("run.json", "result.json", "metrics.ndjson", "state.pt")
PARTS_OF_A_RUN = ("model", "answers.db", "losses.ndjson", "measure-*.json", "evals-*.json", *OF_A_RUN)
PLACE_OF_A_RUN = re.compile("[0-9a-f]{8,64}")
PLACE = "ablate.check"
"""Where wings add their logs."""
PREFIX = ".merge-"
"""Names of the folders that archives are unpacked into begin so."""


def run_folders(store: Store) -> list[str]:
    """Sorted names of the folders that may hold runs, without those that another user has made private."""
    with os.scandir(store.root) as entries:
        # os.path: a link may lead to itself
        found = [entry.name for entry in entries if not entry.name.startswith(".") and os.path.isdir(entry.path)]  # noqa: PTH112
    return sorted(set(found) - FOLDERS - {path.name for path in store.closed()})


def corpora(store: Store) -> list[str]:
    return sorted(path.name for path in store.data_dir.glob("[!.]*") if path.is_dir())


def is_bound(path: Path) -> bool:
    """Whether a document states its checksum and its path. One of an earlier version may lack either.

    Raises OSError if it cannot be read, or is not a regular file.
    """
    found = checksum.unsealed_json(read_regular(path))
    return found.is_sealed and found.place is not None


class Check:
    """One pass over a store. `damages` yields a line for each damaged file: its path, the problem, the remedy.
    `unchecked` then counts, by kind, the files in which damage may go unnoticed: earlier versions sealed less.

    quick: skip runs, corpora and checkpoints that an earlier check on this machine found intact and whose files have
    not changed since. `unchanged` counts them.
    """

    def __init__(self, store: Store, quick: bool = False) -> None:
        self.store, self.quick = store, quick
        self.unchanged = 0
        self.unchecked: Counter[str] = Counter()
        self.unreadable: dict[str, None] = {}
        """Operating-system errors of unreadable files; they are no evidence of damage."""
        self._unread = 0

    def damages(self) -> Iterator[str]:
        store = self.store
        for folder in store.closed():
            self.unreadable[f"Permission denied: {folder}"] = None
        for folder in left_behind(store.root, PREFIX, is_shared=True):
            yield f"{folder} was left by a killed merge: remove it, or merge the archive again"
        yield from self._guarded(self._no_folders())
        yield from self._readable(lambda: list(store.merged_log.records()))
        self._note_unsealed(store.merged_log)
        known = WholeFolders(store.root)
        for digest in run_folders(store):
            yield from self._unless_known(known, digest, self._of_run(digest))
        for path in sorted(store.root.glob("studies/[!.]*/")):
            yield from self._guarded(self._of_study(StudyFolder(path)))
        for search in (each for wing in modules_of(f"{PLACE}.searches") for each in wing.every_folder(store)):
            yield from self._of_search(search)
        for digest in corpora(store):
            yield from self._unless_known(known, f"data/{digest}", self._of_corpus(digest))
        described = map(store.data, sorted(path.name for path in store.root.glob("described/[!.]*")))
        for corpus in (each for each in described if not each.path.is_dir()):  # others: checked with their text
            document = corpus.described_path
            yield from self._document(document, f"remove {document.parent}", corpus.read)
            yield from self._references(corpus)
        for path in sorted(store.root.glob("checkpoints/[!.]*")):
            again = self._folder(path, f"remove {path}, and run the study again")
            yield from self._unless_known(known, f"checkpoints/{path.name}", again)
        for name in store.imports():
            remedy = "remove it, and import the model again"
            yield from self._document(store.import_path(name), remedy, store.read_import, name)
        for digest in store.calibrations():
            path = store.calibration_path(digest)
            yield from self._document(path, "remove it to measure the step time again", store.read_calibration, digest)
        yield from self._of_logs()
        known.write()

    def _of_logs(self) -> Iterator[str]:
        """Ledgers, and logs of wings."""
        for name in self._attempt(self.store.ledgers)[1]:
            yield from self._readable(self.store.read_ledger, name)
            self._note_unsealed(self.store.ledger(name))
        for wing in modules_of(PLACE):
            found = [self._attempt(each) for each in wing.listings(self.store)]
            for name in sorted({name for whole, names in found if whole for name in names}):
                yield from self._readable(wing.read, self.store, name)

    def _no_folders(self) -> Iterator[str]:
        """Files, pipes and broken links in place of folders, which listings leave out."""
        root, deep = self.store.root, ("studies", "searches", "data", "described", "checkpoints")
        found = [each for each in root.glob("[!.]*") if each.name in FOLDERS or PLACE_OF_A_RUN.fullmatch(each.name)]
        found += [each for name in deep for each in root.glob(f"{name}/[!.]*")]
        yield from (f"{each} is no folder: remove it" for each in sorted(found) if not each.is_dir())

    def _unless_known(self, known: WholeFolders, name: str, damages: Iterator[str]) -> Iterator[str]:
        """Distinct damages of a folder. With none and every file checked in full, it is recorded as intact."""
        before = stamp(self.store.root / name)
        if self.quick and known.is_unchanged(name, before):
            self.unchanged += 1
            return
        doubts = self._doubts
        found = dict.fromkeys(self._guarded(damages))
        yield from found
        if not found and self._doubts == doubts:
            known.add(name, before, stamp(self.store.root / name))

    @property
    def _doubts(self) -> int:
        """Number of files so far that could not be checked in full."""
        return self.unchecked.total() + self._unread

    def _note_unread(self, error: OSError) -> None:
        self._unread += 1
        self.unreadable[str(error)] = None  # many files may share one error

    def _of_run(self, digest: str) -> Iterator[str]:
        names = os.listdir(self.store.root / digest)  # noqa: PTH208 (a path for each takes longer than the rest)
        if not any(fnmatchcase(name, part) for part in PARTS_OF_A_RUN for name in names):
            return
        store, folder = self.store, self.store.run_dir(digest)
        train_again = f"remove {folder} to train the run again"
        if not store.run_path(digest).exists():
            yield f"{store.run_path(digest)} is gone: {train_again}"
        yield from self._document(store.run_path(digest), train_again, store.read_run, digest)
        yield from self._document(store.result_path(digest), "run the study again", store.read_result, digest)
        # line by line: most logs are short, and polars starts threads for each frame
        yield from self._readable(lambda: list(store.checked(digest, store.metrics_log(digest)).records()))
        yield from self._readable(lambda: list(store.checked(digest, store.probes_log(digest)).records()))
        yield from self._readable(store.read_losses, digest)
        for path in (store.state_path(digest), store.shared_path(digest)):
            yield from self._readable(store.check_state, digest, path)
        known, status = self._attempt(store.status, digest)
        if known and status == "partial":  # an ended run's result has checksums of both logs
            self._note_unsealed(store.metrics_log(digest))
            self._note_unsealed(store.probes_log(digest))
        if status == "partial" and any(folder.glob("evals-*.json")) | any(folder.glob("measure-*.json")):
            yield f"{store.result_path(digest)} is gone: {train_again}"
        merged, elsewhere = self._attempt(_came_without_model, store, digest)
        if store.model_dir(digest).exists() or (status == "finished" and not (merged and elsewhere)):
            again = store.model_again(digest) if self._attempt(store.read_run, digest)[0] else train_again
            yield from self._folder(store.model_dir(digest), again)
        if store.published_dir(digest).exists():
            yield from self._folder(store.published_dir(digest), "import the model again")
        yield from self._answers(store.answers_path(digest), store.model_dir(digest) / stamps.NAME)
        for path in sorted(folder.glob("measure-*.json")):
            name = path.stem.removeprefix("measure-")
            yield from self._document(path, "remove it to measure the run again", store.read_measure, digest, name)
        for path in sorted(folder.glob("evals-*.json")):
            name = path.stem.removeprefix("evals-")
            yield from self._document(path, "remove it to evaluate the run again", store.read_evals, digest, name)
            yield from self._readable(store.read_samples, digest, name)

    def _of_study(self, study: StudyFolder) -> Iterator[str]:
        again = "remove it, and run the study again"
        if not study.exists and any(path.exists() for path in (study.report_path, study.judged_path)):
            yield f"{study.document_path} is gone: run the study again"
        yield from self._document(study.document_path, again, study.read)
        for path in sorted(study.path.glob("costs-*.json")):
            yield from self._document(path, again, study.read_costs, path.stem.removeprefix("costs-"))
        yield from self._document(study.starts_path, again, study.read_starts)
        yield from self._document(study.tuning_path, again, study.read_tuning)
        yield from self._document(study.judged_path, again, study.read_judged)
        yield from self._readable(lambda: list(study.registrations.records()))
        self._note_unsealed(study.registrations)
        readable, judged = self._attempt(study.read_judged)
        if not readable:
            return
        if judged is not None and judged.study not in self.store.ledgers():
            yield from self._readable(self.store.read_ledger, judged.study)
        elif judged is None and study.report_path.exists() and self._judges(study):
            self.unchecked["report.html without judged.json, the record of its judgement in the ledger"] += 1

    def _of_search(self, search: Any) -> Iterator[str]:
        if search.report_path.exists() and not search.exists:
            yield f"{search.document_path} is gone: run the search again"
        yield from self._document(search.document_path, "remove it, and run the search again", search.read)
        yield from self._readable(search.check_journal)
        self._note_unsealed(search.journal)

    def _judges(self, study: StudyFolder) -> bool:
        """Whether a study's page is in a ledger: a pilot's is in none, nor one that compares nothing, as if every run
        failed."""
        readable, document = self._attempt(study.read)
        if not readable or document is None or document.pilot or document.scale in UNJUDGED or len(document.arms) < 2:
            return False
        results = (self._attempt(self.store.read_result, digest) for digest in document.run_digests)
        return any(result is not None for is_read, result in results if is_read)

    def _of_corpus(self, digest: str) -> Iterator[str]:
        folder = self.store.data(digest)
        yield from self._document(folder.document_path, f"remove {folder.path} to prepare the data again", folder.read)
        yield from self._references(folder)
        yield from self._readable(folder.check, True)
        self._note_unbound(folder.path / stamps.NAME)

    def _references(self, folder: DataFolder) -> Iterator[str]:
        for each in folder.known_references():
            path = folder.references_path(*each)
            yield from self._document(path, "remove it, and run the study again", folder.read_references, *each)

    def _folder(self, path: Path, remedy: str) -> Iterator[str]:
        yield from self._readable(stamps.check, path, remedy, True)
        self._note_unbound(path / stamps.NAME)

    def _answers(self, path: Path, of_model: Path) -> Iterator[str]:
        def read() -> None:
            if not answers.check(path, checksum.of_file(of_model) if of_model.is_file() else None):
                self.unchecked["answers.db with unsealed answers, or which does not name its model"] += 1

        yield from self._readable(read)

    def _document(self, path: Path, remedy: str, read: Callable[..., object], *arguments: object) -> Iterator[str]:
        """Problem of a document, if any. An empty or half-written one, which readers treat as absent, is a problem."""
        readable, found = self._attempt(read, *arguments)
        if not readable:
            yield from found
        elif path.exists():
            if found is None:
                yield f"{path}: is empty or half-written: {remedy}"
            self._note_unbound(path)

    def _note_unbound(self, path: Path) -> None:
        """Count a file that lacks its checksum or its path. Unreadable files are reported by their readers."""
        with suppress(OSError):
            if not is_bound(path):
                # leave out the digest of a request
                kind = f"{path.name.partition('-')[0]}-*.json" if "-" in path.name else path.name
                self.unchecked[f"{kind} without its checksum or its path in the store"] += 1

    def _note_unsealed(self, log: SealedLog) -> None:
        """Count a log without seals. Damage is reported by the log's reader."""
        with suppress(StoreError, OSError):
            chain, bodies = log.read()
            if bodies and not chain.has_sealed:
                self.unchecked[f"{log.path.name} without checksums"] += 1

    def _readable(self, read: Callable[..., object], *arguments: object) -> Iterator[str]:
        readable, found = self._attempt(read, *arguments)
        if not readable:
            yield from found

    def _attempt(self, read: Callable[..., object], *arguments: object) -> tuple[bool, Any]:
        """(True, value read), or (False, problems): StoreErrors; an OSError is noted instead."""
        try:
            return True, read(*arguments)
        except StoreError as error:
            return False, [str(error)]
        except OSError as error:
            self._note_unread(error)
            return False, []

    def _guarded(self, found: Iterator[str]) -> Iterator[str]:
        """Pass problems on until an OSError, which is noted: folders, too, may be private to another user."""
        try:
            yield from found
        except OSError as error:
            self._note_unread(error)


def _came_without_model(store: Store, digest: str) -> bool:
    """Whether a run was trained in another store, and came without its model."""
    record, result = store.merged().get(digest), store.read_result(digest)
    return record is not None and result is not None and not record.weights and record.finished == result.finished
