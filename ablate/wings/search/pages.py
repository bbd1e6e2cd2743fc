"""Searches on the pages of a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ablate.wings.search.documents import SearchDocument, SearchFolder, searches
from ablate.wings.search.shown.search_summary import SearchSummary, read_search
from ablate.wings.serve.site import IndexEntry, StorePages, described, link_to
from store import Store, StoreError
from store.documents import JsonObject
from store.errors import ReportError


class SearchPages(StorePages):
    """Every search has an entry and a page. It is read again on every request."""

    def __init__(self) -> None:
        self._served: dict[SearchFolder, tuple[SearchSummary, str]] = {}

    def entries(self, store: Store) -> list[IndexEntry]:
        return [_entry(store, folder) for folder in searches(store)]

    def write(self, store: Store) -> None:
        for folder, entry in zip(searches(store), self.entries(store), strict=True):
            if not entry.error:
                self.write_one(folder.path)

    def write_one(self, folder: Path) -> Path | None:
        from ablate.wings.search.shown.search_page import render  # noqa: PLC0415 (optuna is slow to import)

        return render(folder) if SearchFolder(folder).exists else None

    def page(self, store: Store, path: str) -> str | None:
        folder = next((each for each in searches(store) if link_to(store, each.report_path) == path), None)
        if folder is None:
            return None
        try:
            summary = read_search(folder.path)
        except (ReportError, StoreError, OSError):  # the index entry has the error
            return None
        if folder not in self._served or self._served[folder][0] != summary:
            from ablate.wings.search.shown.search_page import render_page  # noqa: PLC0415 (optuna is slow to import)

            self._served[folder] = (summary, render_page(summary))
        return self._served[folder][1]


SHOWN = SearchPages()


def _entry(store: Store, folder: SearchFolder) -> IndexEntry:
    from ablate.wings.search.shown import search_words  # noqa: PLC0415 (optuna takes long to import)

    entry = IndexEntry("", link_to(store, folder.report_path), folder.path.name)
    try:
        search = read_search(folder.path)
    except (ReportError, StoreError, OSError) as error:
        return replace(entry, error=str(error))
    return replace(
        described(entry, search.document),
        headline=search_words.headline(search),
        statuses=", ".join(f"{count} trials {state}" for state, count in search.states.most_common()),
    )


def search_found(folder: Path) -> SearchDocument:
    """A search's document, with scores on fresh seeds and the best trials by these scores, if there are any."""
    return read_search(folder, curves=False).document


def search_rows(store: Store) -> Iterator[JsonObject]:
    """A row for each search: name, scale, question, and number of trials and of those best or on the front."""
    for document in (search_found(folder.path) for folder in searches(store)):
        best = sum(trial.best for trial in document.trials)
        yield document.model_dump(include={"name", "scale", "question", "created"}) | {
            "trials": len(document.trials),
            "best": best,
        }
