"""The report of a search: one self-contained HTML file that asks the network for nothing."""

from __future__ import annotations

from pathlib import Path

from ablate.store import SearchFolder
from reports.figures import CONFIG
from reports.figures.search import draw_search
from reports.findings.importance import importances
from reports.findings.searches import SearchSummary, read_search
from reports.pages.page import drawn
from reports.pages.templating import FIGURES
from reports.pages.templating import render as render_template
from reports.wording import search_tables, search_words


def render(folder: Path) -> Path:
    """Write a search's page into its folder."""
    return SearchFolder(folder).write_report(render_page(read_search(folder)))


def render_page(search: SearchSummary) -> str:
    """The page as text. Whatever comes from a study is escaped."""
    found = {name: importances(search, place) for place, name in enumerate(search.objectives)}
    figures = draw_search(search, list(found.values()))
    lead, *others = figures or (None,)
    source = f"{search.document.name} at {search.document.scale}"
    data = {"config": CONFIG, "figures": {figure.key: drawn(figure, source, f"search-{source}") for figure in figures}}
    return render_template(
        "search.html.j2",
        FIGURES,
        data,
        search=search,
        words=search_words,
        importances=found,
        tables=search_tables,
        lead=lead,
        figures=others,
        front=search_tables.best_table(search),
    )
