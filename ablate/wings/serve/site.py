"""The index of a store: every study with its question, verdicts and a small figure, and every search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from ablate.wings.serve.trade_offs import Group, Studied, render_trade_offs
from reports.judge.findings.study_summary import RANKS, StudySummary
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.outcomes import StudyProgress, study_progress
from reports.page.html.page import render_study
from reports.page.html.ranked import Ranked
from reports.page.html.ranking import ranked
from reports.page.html.templating import render
from reports.page.sections import summarise_documents
from reports.page.wording import answers, tables, words
from store import Store, StoreError, StudyFolder, write_text
from store.documents import Document
from store.errors import ReportError
from store.extensions import modules_of

OWN = Path(__file__).parent / "templates"
SCRIPTS = ("index.js",)
MOST_ROWS = 6
"""Most arms that a card shows: those with the largest differences."""


@dataclass(frozen=True)
class IndexEntry:
    """A study or a search in the index; a search has no `progress`. If it cannot be reported it has an `error` and no
    later field; if it cannot be read, its name is that of its folder."""

    key: str
    link: str
    name: str
    scale: str = ""
    question: str = ""
    created: str = ""
    progress: StudyProgress | None = None
    error: str = ""
    headline: str = ""
    statuses: str = ""
    verdicts: tuple[tuple[str, int], ...] = ()
    """Number of arms with each verdict, the most informative first."""
    ranked: Ranked | None = None
    summary: StudySummary | None = None
    runs: frozenset[str] = frozenset()
    """Digests of the arms' runs."""

    @property
    def rank(self) -> int:
        return min((RANKS.index(verdict) for verdict, _ in self.verdicts), default=len(RANKS))


class StorePages:
    """Entries and pages of a store that are not of studies, added as `SHOWN` of a module."""

    def entries(self, store: Store) -> list[IndexEntry]:
        """Entries of the index."""
        return []

    def write(self, store: Store) -> None:
        """Write the pages that these entries link to."""

    def write_one(self, folder: Path) -> Path | None:
        """Write the page of one folder; None if it is not one of these."""
        return None

    def page(self, store: Store, path: str) -> str | None:
        """The page at a URL path relative to the index, to be served; None if it is not one of these."""
        return None

    def section(self, store: Store) -> Markup:
        """A section of the index, below its entries."""
        return Markup()

    def groups(self, store: Store, studies: Sequence[Studied]) -> Iterator[Group]:
        """Figures of the page of trade-offs."""
        return iter(())


def shown() -> list[StorePages]:
    return [wing.SHOWN for wing in modules_of("ablate.pages")]


def render_site(root: Path | str) -> Path:
    """Write a store's index, and the reports that it links to. The index comes first, since reports link to it, too."""
    store = Store(root)
    entries = [entry_of(store, folder) for folder in store.studies()]
    index = write_text(store.index_path, render_index(store, entries))
    write_text(store.trade_offs_path, trade_offs_of(store, entries))
    for folder, entry in zip(store.studies(), entries, strict=True):
        if entry.summary is not None:
            # summarised again if more was judged since, such as by another scale's page, since verdicts count that
            still = store.read_ledger(entry.summary.study.name) == entry.summary.ledger
            render_study(folder.path, entry.summary if still else None)
    for each in shown():
        each.write(store)
    return index


def render_other(folder: Path) -> Path:
    """Write the page of a folder that is no study's. Raises ReportError if nothing here can."""
    for each in shown():
        if (page := each.write_one(folder)) is not None:
            return page
    raise ReportError(f"{folder}: what writes its page is not installed")


def trade_offs_of(store: Store, entries: Iterable[IndexEntry]) -> str:
    """The page of all arms of these studies."""
    studies = [Studied(entry.summary, entry.link) for entry in entries if entry.summary is not None]
    return render_trade_offs(studies, [group for each in shown() for group in each.groups(store, studies)])


def shared_runs(entries: list[IndexEntry]) -> dict[str, str]:
    """Studies that share runs with each entry, by its key: `rope_base at cpu (3)`. Their errors are correlated."""
    return {
        entry.key: ", ".join(
            f"{other.name} at {other.scale} ({len(common)})"
            for other in entries
            if other is not entry and (common := entry.runs & other.runs)
        )
        for entry in entries
    }


def render_index(store: Store, entries: list[IndexEntry], refresh: bool = False) -> str:
    """The page as HTML text, newest study first. refresh: the page is served, and reloads."""
    entries = [*entries, *(entry for each in shown() for entry in each.entries(store))]
    newest = sorted(entries, key=lambda entry: entry.created, reverse=True)
    return render(
        "index.html.j2",
        SCRIPTS,
        {"figures": {}},
        OWN,
        entries=newest,
        shared=shared_runs(newest),
        sections=[section for each in shown() if (section := each.section(store))],
        words=words,
        refresh=refresh,
    )


def entry_of(
    store: Store, folder: StudyFolder, documents: StudyDocuments | None = None, progress: StudyProgress | None = None
) -> IndexEntry:
    """A study's entry in the index. documents, progress: if already read."""
    entry = IndexEntry(f"study-{folder.path.name}", link_to(store, folder.report_path), folder.path.name)
    try:
        documents = documents or StudyDocuments.of(folder.path, store)
        entry = described(entry, documents.study)
        runs = frozenset(key.digest for key in documents.keys)
        progress = progress or study_progress(store, documents.study, documents.statuses)
        entry = replace(entry, progress=progress, runs=runs)
        summary = summarise_documents(documents)
    except (ReportError, StoreError, OSError) as error:
        return replace(entry, error=str(error))
    figure = ranked(summary)
    others = [row for row in figure.rows if row.verdict != "baseline"]
    found = Counter(each.verdict for each in (summary.judgements if summary.is_about_loss else others))
    return replace(
        entry,
        headline=answers.headline(summary),
        statuses=tables.statuses(summary.runs),
        verdicts=tuple(sorted(found.items(), key=lambda each: RANKS.index(each[0]))),
        ranked=figure.brief(MOST_ROWS),
        summary=summary,
    )


def described(entry: IndexEntry, document: Document) -> IndexEntry:
    """The entry with the name, scale, question and date of a study's or a search's document."""
    return replace(entry, **document.model_dump(include={"name", "scale", "question", "created"}))


def link_to(store: Store, page: Path) -> str:
    """A page's URL relative to the index."""
    return quote(page.relative_to(store.root).as_posix())
