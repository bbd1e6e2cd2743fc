"""Notebook view of a study: the answer, and one row per arm. No script and no Plotly, so that it displays anywhere."""

from __future__ import annotations

from markupsafe import Markup

from reports.judge.findings.study_summary import StudySummary
from reports.page.html.ranking import ranked
from reports.page.html.templating import environment, source
from reports.page.wording.answers import headline, qualifiers
from reports.page.wording.reference_words import baseline_line
from reports.page.wording.title_words import small_print

SCOPE = ".ablate-result"
"""CSS selector that restricts the page's colours to the cell."""


def render_cell(summary: StudySummary) -> str:
    """An HTML fragment of a few kilobytes per arm."""
    style = source("palette.css").replace(":root", SCOPE) + source("ranked.css")
    return (
        environment()
        .get_template("cell.html.j2")
        .render(
            style=Markup(style),
            answer=headline(summary),
            small_print=small_print(summary),
            standing=baseline_line(summary),
            ranked=ranked(summary),
            qualifiers=list(qualifiers(summary)),
        )
    )
