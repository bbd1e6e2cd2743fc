"""The report: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from reports.judge.findings.next_steps import next_steps
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.outcomes import StudyProgress
from reports.page.figures.base import Figure
from reports.page.figures.drawing import CONFIG, Attributes, looks
from reports.page.html.ranking import ranked
from reports.page.html.templating import FIGURES, render
from reports.page.sections import galleries, sections, summarise_study
from reports.page.wording import (
    answers,
    arm_words,
    cost_words,
    finding_words,
    method_words,
    tables,
    training_words,
    words,
)
from reports.page.wording.arm_words import brief, grouped
from reports.page.wording.method_words import TERMS
from reports.page.wording.table import latex, markdown
from store import Store, StudyFolder
from store.documents import LedgerRecord, StudyDocument
from store.documents.study import UNJUDGED

SCRIPTS = (*FIGURES, "choice.js", "tables.js", "contents.js")
WORDS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        words,
        answers,
        cost_words,
        arm_words,
        training_words,
        method_words,
        tables,
    )
}
"""Wording modules available to templates, by module name."""
INDEX = "../../index.html"
"""Link from a report to the index of its store."""
RANKED = frozenset({"differences", "effects"})
"""Figures that the result figure, with a row for every arm, replaces."""
UNSAFE = re.compile(r"[^\w.-]+")
"""Characters replaced in file names."""


def render_study(study_dir: Path | str, summary: StudySummary | None = None) -> Path:
    """Write a study's report into its folder, and record its tests in the ledger. summary: computed by default."""
    summary, store = summary or summarise_study(study_dir), Store.of_study(study_dir)
    record(summary, store)
    home = INDEX if store.index_path.exists() else None
    return StudyFolder(Path(study_dir)).write_report(render_page(summary, home=home))


def record(summary: StudySummary, store: Store) -> None:
    """Add the page's tests, with or without a verdict, to the ledger, unless they are there."""
    of_scores = (item.test for arm in summary.arms for item in arm.items)
    tests = (*summary.tests, *(test for test in of_scores if test is not None))
    explores = summary.study.pilot or summary.study.scale in UNJUDGED
    looked = not explores and any(arm.seeds for arm in summary.arms)
    if looked and tests and all(each.tests != tests for each in summary.ledger):
        now = datetime.now(UTC).isoformat(timespec="milliseconds")  # pages of two names may be drawn in one second
        store.ledger(summary.study.name).append([LedgerRecord(judged=now, scale=summary.study.scale, tests=tests)])
    if looked and tests:
        store.keep_judged(summary.study.name, summary.study.scale)


def record_look(study_dir: Path | str) -> None:
    """Record a study that is not drawn: its losses were seen, so its seeds may not be selected by them."""
    record(summarise_study(study_dir), Store.of_study(study_dir))


def render_page(summary: StudySummary, progress: StudyProgress | None = None, home: str | None = None) -> str:
    """The page as HTML text. All text from a study is escaped. progress: makes it a served page, which reloads while
    the study runs. home: address of the index of studies."""
    found = galleries(summary)
    source, name = finding_words.source(summary), name_of(summary.study)
    drawn_already = [figure for figures in found.values() for figure in figures if figure.key in RANKED]
    others = {heading: [each for each in figures if each.key not in RANKED] for heading, figures in found.items()}
    shown = {heading: figures for heading, figures in others.items() if figures}
    figures = {figure.key: figure for figures in shown.values() for figure in figures}
    listed = tables.listed(summary.runs)
    data = {
        "config": CONFIG,
        "figures": {key: drawn(figure, source, name) for key, figure in figures.items()},
        "runs": tables.run_documents(listed),
    }
    compact = answers.compact_table(summary)
    return render(
        "report.html.j2",
        SCRIPTS,
        data,
        study=summary.study,
        summary=summary,
        ranked=ranked(summary),
        listed=listed,
        seeds=[figure.table for figure in drawn_already],
        galleries=shown,
        notes={each.gallery: each.gallery_note for each in sections().values()},
        looks=looks([arm.name for arm in summary.arms]),
        names=brief([arm.name for arm in summary.arms]),
        compact=compact,
        markup={"Markdown": markdown(compact), "LaTeX": latex(compact)},
        source=source,
        small_print=finding_words.small_print(summary),
        steps=next_steps(summary),
        warnings=grouped(summary.warnings),
        terms=TERMS,
        progress=progress,
        home=home,
        own=None,
        **WORDS,
    )


def drawn(figure: Figure, source: str, name: str) -> Attributes:
    """Figure data for the page's script. An exported picture shows its `source`; its file name begins with `name`."""
    switches = {
        switch.key: [{"traces": option.traces, "layout": option.layout} for option in switch.options]
        for switch in figure.switches
    }
    return {
        **figure.drawing.to_plotly_json(),
        "switches": switches,
        "chosen": {switch.key: switch.chosen for switch in figure.switches},
        "combined": figure.combined,
        "stamp": stamp(figure, source, name),
    }


def stamp(figure: Figure, source: str, name: str) -> dict[str, str]:
    """Title and source for an exported picture, escaped since Plotly reads a subset of HTML, and its file name."""
    title, source = escape(figure.title, quote=False), escape(source, quote=False)
    return {"title": title, "source": source, "filename": f"{UNSAFE.sub('-', name)}-{figure.key}"}


def name_of(study: StudyDocument) -> str:
    """Prefix of the study's file names."""
    return f"{study.name}-{study.scale}"
