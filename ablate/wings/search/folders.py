"""The folders of searches in a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.wings.search.documents import SearchDocument
from store import Store, StoreError, jsonfile, replacing
from store.folders import ReportedFolder
from store.paths import folder_name
from store.seals import SealedLog


class SearchFolder(ReportedFolder):
    """`searches/<name>-<scale>/`."""

    document_name = "search.json"

    @property
    def journal_path(self) -> Path:
        """optuna's trials, unless they are in a database."""
        return self.path / "journal.log"

    @property
    def journal(self) -> SealedLog:
        remedy = f"restore it, or remove {self.path} to search again: its runs are kept"
        return SealedLog(self.journal_path, self.path.name, remedy)

    def check_journal(self) -> None:
        """Raises StoreError if a line of the journal is damaged, or the journal lacks trials that the search's document
        shows."""
        document = self.read()
        if document is not None and document.journal is not None and self.journal.lacks(document.journal):
            raise StoreError(f"{self.journal_path} lacks trials that {self.document_path} shows: {self.journal.remedy}")
        for number, body in enumerate(self.journal.bodies(), start=1):
            self.journal.parsed(body, number)

    @property
    def journal_lock_path(self) -> Path:
        return self.path / "journal.lock"

    @property
    def asking_lock_path(self) -> Path:
        """Lock of the one command that asks for a trial."""
        return self.path / "asking.lock"

    @property
    def owners_dir(self) -> Path:
        """One file for each searching command, locked during the command's lifetime."""
        return self.path / "owners"

    def read(self) -> SearchDocument | None:
        return jsonfile.read(self.document_path, SearchDocument, "remove it, and run the search again")

    def write(self, search: SearchDocument) -> None:
        jsonfile.write(self.document_path, search)

    @contextmanager
    def table(self, kind: str) -> Iterator[Path]:
        """Temporary path that becomes the table of trials, as `csv` or `parquet`."""
        with replacing(self.path / f"trials.{kind}") as temporary:
            yield temporary


def search_folder(store: Store, name: str, scale: str) -> SearchFolder:
    return SearchFolder(store.root / "searches" / folder_name(name, scale))


def every_folder(store: Store) -> list[SearchFolder]:
    """Folders of searches, sorted, with results or without."""
    return [SearchFolder(path) for path in sorted(store.root.glob("searches/[!.]*/"))]


def searches(store: Store) -> list[SearchFolder]:
    """Folders of searches with results, sorted."""
    return [folder for folder in every_folder(store) if folder.exists]


def named(store: Store) -> Iterator[tuple[Path, str, str]]:
    """Folder, name and scale of every search."""
    yield from ((folder.path, each.name, each.scale) for folder in searches(store) if (each := folder.read()))
