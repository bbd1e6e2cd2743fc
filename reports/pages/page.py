"""The report: one self-contained HTML file that asks the network for nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ablate.store import Store, StudyFolder
from ablate.store.documents import LedgerRecord
from reports.figures import CONFIG, Figure, galleries
from reports.figures.base import Attributes
from reports.figures.style import looks
from reports.findings.shapes import StudySummary
from reports.findings.summary import summarise_study
from reports.pages.templating import render
from reports.reading.progress import StudyProgress
from reports.wording import (
    answers,
    cost_words,
    effect_words,
    length_words,
    method_words,
    rate_words,
    tables,
    words,
)

SCRIPTS = ("figures.js", "choice.js", "tables.js")


def render_study(study_dir: Path | str, summary: StudySummary | None = None) -> Path:
    """Draw a study, summarised unless a `summary` is given, into its folder, and keep what it judges in the ledger."""
    summary = summary or summarise_study(study_dir)
    record(summary, Store.of_study(study_dir))
    return StudyFolder(Path(study_dir)).write_report(render_page(summary))


def record(summary: StudySummary, store: Store) -> None:
    """Add what is judged on this page to the ledger, unless it is there."""
    tests = summary.tests
    judged = any(test.p is not None for test in tests)
    if judged and all(each.tests != tests for each in summary.ledger):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        store.append_ledger(summary.study.name, LedgerRecord(judged=now, scale=summary.study.scale, tests=tests))


def render_page(summary: StudySummary, progress: StudyProgress | None = None) -> str:
    """The page as text. Whatever comes from a study is escaped. With `progress` it is one that is served: it links to
    the other studies, and reloads while the study runs."""
    found = galleries(summary)
    data = {
        "config": CONFIG,
        "figures": {figure.key: drawn(figure) for figures in found.values() for figure in figures},
        "runs": tables.run_documents(summary),
    }
    return render(
        "report.html.j2",
        SCRIPTS,
        data,
        study=summary.study,
        summary=summary,
        words=words,
        answers=answers,
        effect_words=effect_words,
        cost_words=cost_words,
        length_words=length_words,
        rate_words=rate_words,
        method_words=method_words,
        tables=tables,
        galleries=found,
        notes={each.gallery: each.gallery_note for each in summary.sections.values()},
        looks=looks([arm.name for arm in summary.arms]),
        progress=progress,
    )


def drawn(figure: Figure) -> Attributes:
    """What the page's script needs of a figure."""
    switches = {
        switch.key: [
            {"traces": option.traces, "layout": option.layout, "better": option.better} for option in switch.options
        ]
        for switch in figure.switches
    }
    chosen = {switch.key: switch.chosen for switch in figure.switches}
    return {**figure.drawing.to_plotly_json(), "switches": switches, "chosen": chosen, "front": figure.front}
