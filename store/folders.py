"""The folders of a store that hold more than one run: studies, and prepared data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from store import jsonfile, stamps
from store.claims import claimed
from store.documents import (
    CostsDocument,
    DataDocument,
    JudgedDocument,
    ReferencesDocument,
    RegistrationRecord,
    StartsDocument,
    StudyDocument,
    SyntheticMeta,
    TextMeta,
    TuningDocument,
)
from store.files import StoreError, remove_leftovers, replacing, write_text
from store.logs import LogFile

REFERENCES_NAME = re.compile(r"references-([1-9][0-9]{0,11})-([1-9][0-9]{0,11})\.json")


@dataclass(frozen=True)
class ReportedFolder:
    """A folder with a document and the report page rendered from it."""

    path: Path
    document_name: ClassVar[str]

    @property
    def document_path(self) -> Path:
        return self.path / self.document_name

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    @property
    def exists(self) -> bool:
        """Whether a study was planned here, or a search has results."""
        return self.document_path.is_file()

    def write_report(self, html: str) -> Path:
        return write_text(self.report_path, html)


class StudyFolder(ReportedFolder):
    """`studies/<name>-<scale>/`."""

    document_name = "study.json"

    def read(self) -> StudyDocument | None:
        return jsonfile.read(self.document_path, StudyDocument, "remove it, and run the study again")

    def write(self, study: StudyDocument) -> None:
        jsonfile.write(self.document_path, study)

    def costs_path(self, request: str) -> Path:
        """The arms' speeds, measured against each other."""
        return self.path / f"costs-{request}.json"

    def read_costs(self, request: str) -> CostsDocument | None:
        path, remedy = self.costs_path(request), "remove it, and run the study again to measure its arms' speeds"
        found = jsonfile.read(path, CostsDocument, remedy)
        if found is not None and found.request != request:
            raise StoreError(f"{path}: request: expected {request!r}, not {found.request!r}: {remedy}")
        return found

    def write_costs(self, found: CostsDocument) -> None:
        jsonfile.write(self.costs_path(found.request), found)

    @property
    def judged_path(self) -> Path:
        """The last judgement that the ledger must contain, since this study's page shows it."""
        return self.path / "judged.json"

    def read_judged(self) -> JudgedDocument | None:
        return jsonfile.read(self.judged_path, JudgedDocument, f"remove it, and report {self.path} again")

    @property
    def starts_path(self) -> Path:
        """Where the searches for learning rates began."""
        return self.path / "starts.json"

    def read_starts(self) -> StartsDocument | None:
        return jsonfile.read(self.starts_path, StartsDocument, "remove it, and run the study again")

    def write_starts(self, found: StartsDocument) -> None:
        jsonfile.write(self.starts_path, found)

    @property
    def tuning_path(self) -> Path:
        """The round in which its arms are tuned, until they are planned."""
        return self.path / "tuning.json"

    def read_tuning(self) -> TuningDocument | None:
        return jsonfile.read(self.tuning_path, TuningDocument, "remove it, and run the study again")

    def write_tuning(self, found: TuningDocument) -> None:
        jsonfile.write(self.tuning_path, found)

    @property
    def registrations(self) -> LogFile[RegistrationRecord]:
        """Registered plans."""
        remedy = "restore the file, since the report shows what was registered"
        return LogFile(self.path / "registered.ndjson", self.path.name, remedy, RegistrationRecord)


@dataclass(frozen=True)
class DataFolder:
    """`data/<digest>/`. `split` is `train`, `tuning`, `judging` or `test`; some files exist for held-out text only."""

    path: Path
    final: Path | None = None
    """Its final path, while it is being made elsewhere."""

    @property
    def document_path(self) -> Path:
        return self.path / "meta.json"

    @property
    def described_path(self) -> Path:
        """The document of a corpus whose text is in another store."""
        return self.path.parent.parent / "described" / self.path.name / "meta.json"

    @property
    def is_known(self) -> bool:
        """Whether its document is here, with or without the text."""
        return self.path.is_dir() or self.described_path.is_file()

    @property
    def tokenizer_path(self) -> Path:
        return self.path / "tokenizer.json"

    def tokens_path(self, split: str) -> Path:
        return self.path / f"{split}.bin"

    def offsets_path(self, split: str) -> Path:
        """Offsets, in tokens, at which documents begin."""
        return self.path / f"{split}.offsets.npy"

    def texts_path(self, split: str) -> Path:
        """The documents themselves."""
        return self.path / f"{split}.jsonl"

    def bytes_path(self, split: str) -> Path:
        """Number of bytes of each token."""
        return self.path / f"{split}.bytes.npy"

    def references_path(self, context: int, tokens: int) -> Path:
        """Losses of simple models; beside the document, so of text in another store too."""
        folder = self.described_path.parent if self.is_elsewhere else self.path
        return folder / f"references-{context}-{tokens}.json"

    def known_references(self) -> list[tuple[int, int]]:
        """(context, tokens) of the stored losses of simple models, sorted."""
        paths = self.references_path(0, 0).parent.glob("references-*.json")
        found = (REFERENCES_NAME.fullmatch(path.name) for path in paths)
        return sorted((int(each[1]), int(each[2])) for each in found if each)

    def read_references(self, context: int, tokens: int) -> ReferencesDocument | None:
        path = self.references_path(context, tokens)
        return jsonfile.read(path, ReferencesDocument, "remove it, and run the study again")

    def write_references(self, found: ReferencesDocument) -> None:
        jsonfile.write(self.references_path(found.context, found.references.tokens), found)

    @property
    def is_elsewhere(self) -> bool:
        """Whether only its document is here, since its text is in another store."""
        return not self.path.is_dir() and self.described_path.exists()

    @contextmanager
    def making(self) -> Iterator[DataFolder | None]:
        """An empty folder that becomes this one after the block; None if this one exists already.

        The folder is claimed meanwhile (`store.claims`), so two processes do not make it twice.
        """
        with claimed(self.path.with_name(f".{self.path.name}"), writes=self.path):
            if self.path.exists():
                yield None
                return
            remove_leftovers(self.path.parent, f".{self.path.name}")
            with replacing(self.path) as temporary:
                temporary.mkdir()
                yield DataFolder(temporary, final=self.path)

    def read(self) -> TextMeta | SyntheticMeta:
        """The document of the corpus. Raises StoreError if it is missing or half-written."""
        path = self.described_path if self.is_elsewhere else self.document_path
        remedy = f"remove {path.parent} to prepare the data again"
        kind = jsonfile.read(path, _Kind, remedy)
        shape: type[TextMeta] | type[SyntheticMeta] = SyntheticMeta if kind and kind.kind == "synthetic" else TextMeta
        found = jsonfile.read(path, shape, remedy)
        if found is None:
            raise StoreError(f"{path}: is gone or half-written: {remedy}")
        return found

    def write(self, meta: TextMeta | SyntheticMeta) -> None:
        """Write the document and the checksums of all files, after the other files."""
        place = self.final or self.path
        jsonfile.write(self.document_path, meta, jsonfile.place_of(place / self.document_path.name))
        stamps.write(self.path, place)

    def check(self, afresh: bool = False) -> None:
        """Raises StoreError if a file has changed since it was prepared. afresh: ignore earlier checks."""
        stamps.check(self.path, f"remove {self.path} to prepare the data again", afresh)


class _Kind(DataDocument, extra="ignore"):
    """The field that tells text from a synthetic task, other fields ignored."""

    kind: str
