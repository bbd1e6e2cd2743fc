"""Notebook view of a study: the answer, the table of arms, and the main figure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.figures import CONFIG, Figure
from reports.findings.shapes import StudySummary
from reports.pages.page import drawn, name_of
from reports.pages.templating import FIGURES, render
from reports.sections import draw
from reports.wording import title_words
from reports.wording.answers import closing_table, headline

MARGIN = 90
"""Pixels of title and toolbar beside a drawing."""


def render_cell(summary: StudySummary) -> str:
    """HTML without a document around it. Answer and table need no script, so they show where scripts are not trusted;
    the figure is a frame of its own, so that its scripts and the notebook's leave each other alone.
    """
    figures = draw(summary)
    parts = [f"<p><strong>{escape(headline(summary))}</strong></p>", html_table(closing_table(summary))]
    return "".join([*parts, *(_frame(figure, summary) for figure in figures[:1])])


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, the header first, as HTML without a style of its own."""
    header, *body = rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _frame(figure: Figure, summary: StudySummary) -> str:
    shown = drawn(figure, title_words.source(summary), name_of(summary.study))
    data = {"config": CONFIG, "figures": {figure.key: shown}}
    page = render("cell.html.j2", FIGURES, data, it=figure)
    height = (figure.drawing.layout.height or 450) + MARGIN
    title, page = escape(figure.title), escape(page)
    return f'<iframe title="{title}" srcdoc="{page}" style="width: 100%; height: {height}px; border: 0"></iframe>'
