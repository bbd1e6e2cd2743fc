"""The index of a store: every study with its question, its verdicts and a small figure, and every search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go

from ablate.store import Store, StoreError, read_json
from reports.figures import CONFIG
from reports.figures.small import small_differences
from reports.findings.searches import read_search
from reports.findings.shapes import StudySummary
from reports.findings.summary import summarise_study
from reports.pages.page import render_study
from reports.pages.templating import render
from reports.reading.collect import ReportError
from reports.reading.progress import Progress, study_progress
from reports.wording import search_words, tables, words

SCRIPTS = ("figures.js", "index.js")
RANKS = ("better", "worse", "no difference", "inconclusive", "cannot tell", "diverged", "baseline")
"""How studies are sorted by verdict: the most telling one first."""


@dataclass(frozen=True)
class Entry:
    """A study of the index, or a search, whose `progress` is not known. One that cannot be reported has an `error` and
    nothing after it."""

    key: str
    link: str
    name: str
    scale: str
    question: str
    created: str
    progress: Progress | None = None
    error: str = ""
    headline: str = ""
    statuses: str = ""
    verdicts: tuple[tuple[str, str, str], ...] = ()
    """Arm, verdict, difference."""
    drawing: go.Figure | None = None

    @property
    def rank(self) -> int:
        found = [RANKS.index(verdict) for _, verdict, _ in self.verdicts]
        return min(found, default=len(RANKS))


def render_site(root: Path | str) -> Path:
    """Write `index.html` in a store, and the report of each of its studies and searches."""
    store = Store(root)
    entries = [entry_of(store, folder, number) for number, folder in enumerate(store.studies())]
    for folder, entry in zip(store.studies(), entries, strict=True):
        if not entry.error:
            render_study(folder)
    searches = [search_entry(folder) for folder in store.searches()]
    for folder, entry in zip(store.searches(), searches, strict=True):
        if not entry.error:
            _render_search(folder)
    path = store.root / "index.html"
    with store.replacing(path) as temporary:
        temporary.write_text(render_index([*entries, *searches]), encoding="utf-8")
    return path


def render_index(entries: list[Entry], refresh: bool = False) -> str:
    """The page as text, the newest study first. `refresh`: it is served, and loads anew."""
    newest = sorted(entries, key=lambda entry: entry.created, reverse=True)
    figures = {entry.key: _drawn(entry.drawing) for entry in newest if entry.drawing is not None}
    data = {"config": CONFIG | {"staticPlot": True}, "figures": figures}
    return render("index.html.j2", SCRIPTS, data, entries=newest, words=words, refresh=refresh)


def entry_of(store: Store, folder: Path, number: int, summary: StudySummary | None = None) -> Entry:
    """A study as the index shows it. `summary` where it is already known."""
    study = read_json(folder / "study.json")
    if study is None:
        raise ReportError(f"{folder} holds no study.json")
    common: dict[str, Any] = {
        "key": f"study-{number}",
        "link": f"studies/{quote(folder.name)}/report.html",
        **{name: study[name] for name in ("name", "scale", "question", "created")},
        "progress": study_progress(store, study),
    }
    try:
        summary = summary or summarise_study(folder)
    except (ReportError, StoreError) as error:
        return Entry(**common, error=str(error))
    return Entry(
        **common,
        headline=words.headline(summary),
        statuses=tables.statuses(summary.runs),
        verdicts=tuple(
            (arm.name, arm.verdict, words.difference(arm.comparison) if arm.comparison else words.plus_minus(arm.loss))
            for arm in summary.arms
        ),
        drawing=small_differences(summary),
    )


def search_entry(folder: Path) -> Entry:
    """A search as the index shows it."""
    link = f"searches/{quote(folder.name)}/report.html"
    try:
        search = read_search(folder)
    except (ReportError, StoreError) as error:
        return Entry("", link, folder.name, "", "", "", error=str(error))
    document = search.document
    return Entry(
        key="",
        link=link,
        **{name: document[name] for name in ("name", "scale", "question", "created")},
        headline=search_words.headline(search),
        statuses=", ".join(f"{count} trials {state}" for state, count in search.states.most_common()),
    )


def _render_search(folder: Path) -> None:
    from reports.pages.search_page import render as render_page  # noqa: PLC0415 (optuna takes seconds to import)

    render_page(folder)


def _drawn(drawing: go.Figure) -> dict[str, Any]:
    return {**drawing.to_plotly_json(), "switches": {}, "chosen": {}, "front": False}
