"""Figures and tables of a study for a paper: SVG, Markdown and LaTeX."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from ablate.api.reporting import reported
from reports.judge.findings.study_summary import StudySummary
from reports.page.figures.base import Figure
from reports.page.html.page import name_of, stamp
from reports.page.html.templating import render
from reports.page.sections import draw, summarise_study
from reports.page.wording import answers, finding_words, tables
from reports.page.wording.table import latex, markdown
from store import AblateError, Store, write_text

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
WIDTH = 760
SECONDS = 120


class ExportError(AblateError):
    """A browser is installed, but did not draw the figures."""


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote, and the keys of figures left out because no Chromium was found."""

    written: list[Path]
    left_out: list[str]


def export_report(path: str | Path, directory: str | Path) -> Exported:
    """Write a study's figures as SVG, using an installed Chromium, and its tables as Markdown and LaTeX.

    Args:
        path: a study's folder in a store.
        directory: where the files go.

    Returns:
        The files, and the figures left out if there is no Chromium.

    Raises:
        AblateError: `path` is not a study, or Chromium failed.

    Example:
        >>> ablate.export_report("runs/studies/norm_placement-cpu", "paper/figures").written
    """
    folder, kind = reported(path)
    if kind != "study":
        example = (Store("STORE") if kind == "search" else Store(folder)).study("NAME", "cpu").path
        raise AblateError(f"{path} is a {kind}: export a study instead, such as {example}")
    summary = summarise_study(folder)
    figures = draw(summary)
    drawn = _svg(figures, summary)
    files = {f"{key}.svg": text for key, text in drawn.items()}
    tabled = {
        "summary": answers.compact_table(summary),
        "results": tables.arms_table(summary),
        "budgets": tables.budgets_table(summary),
        "edits": tables.edits_table(summary),
        "runs": tables.runs_table(summary.runs),
        "environment": tables.environment_table(summary),
        **{f"figure-{figure.key}": figure.table for figure in figures},
    }
    for name, table in tabled.items():
        files |= {f"{name}.md": markdown(table), f"{name}.tex": latex(table)}
    target = Path(directory)
    for name, text in files.items():
        write_text(target / name, text)
    return Exported([target / name for name in files], [figure.key for figure in figures if figure.key not in drawn])


def _svg(figures: tuple[Figure, ...], summary: StudySummary) -> dict[str, str]:
    """SVG text of each figure by key, drawn by Plotly; empty without a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not figures:
        return {}
    source, name = finding_words.source(summary), name_of(summary.study)
    drawings = {
        figure.key: {**figure.drawing.to_plotly_json(), "stamp": stamp(figure, source, name)} for figure in figures
    }
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "export.html"
        page.write_text(
            render(
                "export.html.j2",
                ("stamp.js", "export.js"),
                {"width": WIDTH, "figures": drawings},
                Path(__file__).parent,
            ),
            encoding="utf-8",
        )
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has no sandbox for root
        options = ["--headless", "--disable-gpu", f"--user-data-dir={folder}/profile", "--virtual-time-budget=60000"]
        command = [browser, *sandbox, *options, "--dump-dom", page.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            raise ExportError(f"{browser} did not draw the figures: {error}") from error
    drawn = _Drawn(done.stdout).images
    if drawn.keys() != {figure.key for figure in figures}:
        raise ExportError(f"{browser} did not draw all of the figures")
    return drawn


class _Drawn(HTMLParser):
    """Images that the export page holds once its script is done, by alternative text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img" and found.get("alt") and found.get("src"):
            kind, _, text = str(found["src"]).partition(",")
            assert kind == "data:image/svg+xml", kind
            self.images[str(found["alt"])] = unquote(text)
