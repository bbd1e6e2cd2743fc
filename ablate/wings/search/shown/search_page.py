"""The report of a search: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

from pathlib import Path

from ablate.wings.search.documents import SearchFolder, TrialRecord
from ablate.wings.search.shown import search_tables, search_words
from ablate.wings.search.shown.search_figures import draw_search
from ablate.wings.search.shown.search_summary import SearchSummary, read_search
from reports.page.figures.drawing import CONFIG
from reports.page.html.page import drawn
from reports.page.html.templating import FIGURES
from reports.page.html.templating import render as render_template
from store.documents import JsonObject


def render(folder: Path) -> Path:
    """Write a search's page into its folder."""
    return SearchFolder(folder).write_report(render_page(read_search(folder)))


def render_page(search: SearchSummary) -> str:
    """The page as HTML text. All text from a study is escaped."""
    figures = draw_search(search)
    lead, *others = figures or (None,)
    source = f"{search.document.name} at {search.document.scale}"
    data = {
        "config": CONFIG,
        "figures": {figure.key: drawn(figure, source, f"search-{source}") for figure in figures},
        "trials": [_trial(search, trial) for trial in search.trials],
    }
    return render_template(
        "search.html.j2",
        (*FIGURES, "trials.js"),
        data,
        own=Path(__file__).parent,
        search=search,
        words=search_words,
        tables=search_tables,
        lead=lead,
        figures=others,
        front=search_tables.trials_table(search, search.best),
    )


def _trial(search: SearchSummary, trial: TrialRecord) -> JsonObject:
    """A trial and its runs, for the page's details."""
    runs = [search.runs[digest] for digest in trial.runs if digest in search.runs]
    return {
        "number": trial.number,
        "state": trial.state,
        "error": trial.error,
        "scores": dict(zip(search.objectives, trial.values or (None,) * len(search.objectives), strict=True)),
        "settings": {**trial.settings},
        "runs": [
            {
                "seed": run.seed,
                "status": run.status,
                "logs": f"ablate logs {run.digest}",
                "steps": list(run.steps),
                "losses": list(run.losses),
            }
            for run in runs
        ],
    }
