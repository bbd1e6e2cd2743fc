"""Runs that ended in an error are named in the figure, and their traceback and command stand on the page."""

from __future__ import annotations

from pathlib import Path

import reports
from reports.page.html.page import render_page
from reports.page.html.ranking import ranked
from store import Store
from tests.reports.factory import Arm, StudyOf

LINES = "".join(f"  line {i}\n" for i in range(20))
TRACEBACK = f"Traceback (most recent call last):\n{LINES}ValueError: <too big>"


def test_an_arm_that_failed_says_why(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", [2.4, 2.41]), Arm("broken", [None, None])], measured=False)
    folder, store = study.write(tmp_path), Store(tmp_path)
    for seed in range(2):
        digest = study.digest(study.arms[1], seed)
        store.run_path(digest).parent.mkdir(parents=True, exist_ok=True)
        store.write_error(digest, "ValueError: <too big>", TRACEBACK)
    summary = reports.summarise(folder)
    assert ranked(summary).rows[-1].note == "no result for 2 of 2 runs: ValueError: <too big>"
    page = render_page(summary)
    assert "broken, seeds 0, 1" in page
    assert "line 19\nValueError: &lt;too big&gt;" in page
    assert "line 10" not in page
    assert f"ablate logs {study.digest(study.arms[1], 0)}" in page


def test_a_run_that_was_trained_after_an_error_is_no_failure(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", [2.4, 2.41]), Arm("other", [2.3, 2.31])], measured=False)
    folder = study.write(tmp_path)
    Store(tmp_path).write_error(study.digest(study.arms[1], 0), "ValueError: once", TRACEBACK)
    assert "Failed runs" not in render_page(reports.summarise(folder))
