"""Analysis of a study: collect, summarise, draw. Reads only the store and never loads torch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from reports.judge.findings.next_steps import next_steps
    from reports.judge.findings.study_summary import StudySummary
    from reports.page.html.page import record_look
    from reports.page.html.page import render_study as render
    from reports.page.html.ranking import render_cell as notebook_cell
    from reports.page.sections import summarise_study as summarise
    from reports.page.wording.answers import closing_table as table
    from reports.page.wording.answers import headline
    from reports.page.wording.cost_words import unmeasured
    from reports.page.wording.finding_words import sentence
    from reports.page.wording.summary_json import documents

# Lazy, so that `import reports` is cheap.
_HOME = {
    "documents": "reports.page.wording.summary_json",
    "headline": "reports.page.wording.answers",
    "next_steps": "reports.judge.findings.next_steps",
    "notebook_cell": "reports.page.html.ranking:render_cell",
    "record_look": "reports.page.html.page",
    "render": "reports.page.html.page:render_study",
    "sentence": "reports.page.wording.finding_words",
    "summarise": "reports.page.sections:summarise_study",
    "table": "reports.page.wording.answers:closing_table",
    "unmeasured": "reports.page.wording.cost_words",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reports' has no attribute '{name}'")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def contrasts(summary: StudySummary) -> list[str]:
    """One sentence per declared comparison between arms other than the baseline."""
    from reports.page.sections.contrasts import sentence as compared  # noqa: PLC0415 (keeps the import cheap)

    return [compared(summary, each) for each in summary.contrasts]


def rates(summary: StudySummary) -> str:
    """Sentence on the source of the arms' learning rates: `Rates as written, not tuned.`"""
    from reports.page.wording import training_words  # noqa: PLC0415 (keeps the import cheap)

    return training_words.line(summary.study)


def notes(summary: StudySummary) -> list[str]:
    """Lines that the table and the headline leave out; for a run without verdicts, only where its baseline stands among
    simple models and why it has no speeds."""
    from reports.page.wording import answers, arm_words, cost_words, method_words  # noqa: PLC0415
    from reports.page.wording.finding_words import small_print  # noqa: PLC0415
    from store.documents.study import UNJUDGED  # noqa: PLC0415 (keeps the import cheap)

    found = []
    if summary.study.scale not in UNJUDGED:
        found = [
            small_print(summary),
            *answers.notes(summary),
            *answers.beside(summary),
            *contrasts(summary),
            *(line for each in summary.sections.values() for line in each.in_terminal(summary)),
            *withheld(summary),
            method_words.detectable(summary),
            method_words.look(summary),
        ]
    return list(filter(None, [arm_words.baseline_line(summary), *found, cost_words.unmeasured(summary)]))


def withheld(summary: StudySummary) -> list[str]:
    """Reasons for missing verdicts, one line each: `post, double: no verdict: …`."""
    found: dict[str, list[str]] = {}
    judged = [(arm.name, arm.withheld) for arm in summary.arms]
    for name, reason in [*judged, *((each.effect.name, each.judgement.withheld) for each in summary.effects)]:
        if reason is not None:
            found.setdefault(reason, []).append(name)
    every = sum(len(names) for names in found.values()) > 1
    whole = {reason for reason, names in found.items() if every and len(names) == len(summary.judgements)}
    return [
        f"No verdict: {reason}" if reason in whole else f"{', '.join(names)}: no verdict: {reason}"
        for reason, names in found.items()
    ]


def figures_of(summary: StudySummary) -> dict[str, go.Figure]:
    """All figures of the study's page by key, in the page's order."""
    import plotly.graph_objects as go  # noqa: PLC0415 (keeps the import cheap)

    from reports.page.sections import draw  # noqa: PLC0415 (keeps the import cheap)

    return {figure.key: go.Figure(figure.drawing.to_plotly_json()) for figure in draw(summary)}


def open_arms(study_dir: Path | str) -> tuple[str, ...]:
    """Arms that more seeds could settle, decided on the validation part alone; verdicts compare the test part."""
    from reports.judge.findings import summary  # noqa: PLC0415 (keeps the import cheap)
    from reports.judge.reading.collect import collect, judging  # noqa: PLC0415

    return summary.open_arms(summary.summarise(judging(collect(study_dir))))
