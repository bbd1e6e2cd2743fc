"""A speed that was not measured alone is marked wherever it stands, and the mark explained."""

from __future__ import annotations

from pathlib import Path

import reports
from reports.pages.page import render_page
from reports.wording.tables import runs_table
from tests.reports.factory import Arm, StudyOf

LOSSES = [2.40, 2.41, 2.39]


def test_runs_that_waited_or_shared_a_gpu_are_marked(tmp_path: Path) -> None:
    results = {
        **{("busy", seed): {"waiting": 0.25, "devices": 2} for seed in range(3)},
        **{("shared", seed): {"waiting": 0.01, "beside": 3} for seed in range(3)},
        **{("alone", seed): {"waiting": 0.04} for seed in range(3)},
    }
    arms = [Arm(name, LOSSES) for name in ("alone", "busy", "shared", "unknown")]
    summary = reports.summarise(StudyOf(arms, measured=False, results=results).write(tmp_path))
    header, *rows = reports.table(summary)
    marked = [row[0] for row in rows if row[header.index("tokens/s")].endswith(" †")]
    assert marked == ["busy", "shared"]
    said = (
        "† Not measured alone, so that the speed is not the arm's own: its runs waited for a processor for up to 25 %"
        " of their training, and up to 4 runs shared a GPU."
    )
    assert reports.measured_beside(summary) == said
    assert said.replace("'", "&#39;") in render_page(summary)
    table = runs_table(summary)
    columns = [[row[table.columns.index(name)] for row in table.rows] for name in ("devices", "waited")]
    assert set(zip(*columns, strict=True)) == {("–", "–"), ("2", "25 %")}


def test_what_was_measured_alone_bears_no_mark(tmp_path: Path) -> None:
    summary = reports.summarise(StudyOf([Arm("a", LOSSES), Arm("b", LOSSES)], measured=False).write(tmp_path))
    assert reports.measured_beside(summary) == ""
    assert "†" not in render_page(summary)
    assert not {"devices", "waited"} & set(runs_table(summary).columns)
