"""The report: one self-contained HTML file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ablate.store import Store
from reports import ladder_words, tables, words
from reports.figures import CONFIG, Figure, draw, draw_stability
from reports.findings import StudySummary
from reports.summary import summarise_study
from reports.templating import environment, source


def render_study(study_dir: Path | str) -> Path:
    """Summarise and draw a study into `report.html` in its folder."""
    path = Path(study_dir) / "report.html"
    html = render_page(summarise_study(study_dir))
    with Store.of_study(study_dir).replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return path


def render_page(summary: StudySummary) -> str:
    """The page as text. Whatever comes from a study is escaped."""
    figures, stability = draw(summary), draw_stability(summary)
    script = source("report.js")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            study=summary,
            words=words,
            ladder_words=ladder_words,
            tables=tables,
            figures=figures,
            stability=stability,
            style=Markup(source("report.css")),
            plotly=Markup(plotly_source()),
            script=Markup(script),
            drawings=drawings_of((*figures, *stability)),
            policy=policy_for(plotly_source(), script),
        )
    )


@cache
def plotly_source() -> str:
    """plotly.js with line ends as a browser reads them, so that its hash holds."""
    return str(get_plotlyjs()).replace("\r\n", "\n")


def policy_for(*scripts: str) -> str:
    """A content security policy: these very scripts, inline styles, and nothing from anywhere."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def drawings_of(figures: tuple[Figure, ...]) -> Markup:
    """The figures as JSON that cannot end its script element."""
    document = {
        "config": CONFIG,
        "figures": {figure.key: figure.drawing.to_plotly_json() for figure in figures},
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
