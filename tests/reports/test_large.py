"""A study of 1,000 runs with 2,000 logged steps each, and what thinning its curves keeps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reports
from reports.page.html.templating import packed
from reports.page.sections._runs import RunLoss, drawn_raw, keep_extremes
from reports.page.wording.tables import listed
from tests.reports.browsing import ALL_DRAWN, no_chromium, unpacked, wait_until
from tests.reports.factory import Arm, StudyOf

ARMS, SEEDS, STEPS = 100, 10, 2000
ANSWERS = (
    "document.querySelector('#arms input').click()",
    "(box => { box.value = 'arm 05'; box.dispatchEvent(new Event('input')); })(document.getElementById('run-filter'))",
    "document.querySelectorAll('.runs thead button')[4].click()",
    "(s => { s.value = 0; s.dispatchEvent(new Event('change')); })(document.querySelector('[data-switch]'))",
    "document.querySelector('.runs tbody a').click()",
)
"""Actions of a reader: choose an arm, filter and sort the runs, switch an axis, open a run."""


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=300), st.integers(2, 40))
def test_thinning_keeps_the_ends_and_every_peak(values: list[float], points: int) -> None:
    array = np.array(values)
    kept = keep_extremes(array, points)
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= points + 2
    assert {0, len(values) - 1} <= set(kept.tolist())
    assert array[kept].max() == max(values)
    assert array[kept].min() == min(values)
    bins = max(1, points // 2)
    if len(values) > points:
        for part in range(bins):  # each bin on its own, by a loop
            start, end = part * len(values) // bins, (part + 1) * len(values) // bins
            assert {min(values[start:end]), max(values[start:end])} <= {values[i] for i in kept if start <= i < end}


def test_raw_losses_of_more_runs_than_a_page_has_room_for_are_those_of_each_arms_first() -> None:
    """20,000 points, 20 of each: 1,000 runs, and a third of them for each of three arms."""
    none = np.zeros(0)
    runs = [RunLoss(f"arm {i % 3}", i // 3, str(i), none, none, (), None) for i in range(3000)]
    few = [run for run in runs if run.arm == "arm 1"]
    assert drawn_raw(few) == {"arm 1": few}
    found = drawn_raw(runs)
    assert {arm: [run.seed for run in own] for arm, own in found.items()} == {
        f"arm {i}": list(range(333)) for i in range(3)
    }


def test_a_page_lists_each_arms_first_runs_and_those_that_have_not_finished() -> None:
    runs = pl.DataFrame(
        [(f"arm {i % 3}", i // 3, "diverged" if i in (20_000, 25_000) else "finished") for i in range(30_000)],
        schema=["arm", "seed", "status"],
        orient="row",
    )
    few = runs.head(10_000)
    assert listed(few).equals(few)
    found = listed(runs)
    assert found.height == 3 * 3333 + 2
    assert found.filter(status="diverged")["seed"].to_list() == [20_000 // 3, 25_000 // 3]
    assert found.filter(arm="arm 1", status="finished")["seed"].to_list() == list(range(3333))
    failed = listed(runs.with_columns(status=pl.lit("absent")))
    assert failed.height < 20_000


def study_of_a_thousand_runs(root: Path, seeds: int = SEEDS, steps: int = STEPS) -> Path:
    scatter = np.random.default_rng(0).normal(0, 0.01, (ARMS, seeds))
    arms = [
        Arm(f"arm {i:03d}", (2.3 + 0.001 * i + scatter[i]).tolist(), speed=4000 + 10 * i, steps=steps)
        for i in range(ARMS)
    ]
    return StudyOf(arms, measured=False).write(root)


@pytest.mark.slow
def test_a_thousand_runs_are_rendered_in_time_to_a_page_that_can_be_sent(tmp_path: Path) -> None:
    """The limit is on processor time, which other work on the machine does not lengthen."""
    folder = study_of_a_thousand_runs(tmp_path)
    began = time.process_time()
    path = reports.render(folder)
    assert time.process_time() - began < 10
    page = path.read_text(encoding="utf-8")
    assert len(page) - len(packed(unpacked(page, "plotly"))) < 4e6
    assert page.index('id="differences"') < page.index('id="contents"')  # on the first screen


@pytest.mark.slow
@no_chromium
def test_the_page_of_a_thousand_runs_opens_at_once_and_answers(browser: Any, tmp_path: Path) -> None:
    """The limits are on the processor time of the page's thread."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used() -> float:
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    page.goto(reports.render(study_of_a_thousand_runs(tmp_path)).as_uri())
    assert used() < 3
    wait_until(page, ALL_DRAWN)
    page.wait_for_timeout(500)
    for does in ANSWERS:
        before = used()
        page.evaluate(does)
        page.wait_for_timeout(200)
        assert used() - before < 2, does
    assert page.locator("canvas").count() == 0  # no figure takes one of the browser's few WebGL contexts
    page.close()


@pytest.mark.slow
@no_chromium
def test_the_page_of_ten_thousand_runs_is_light_and_has_them_all(browser: Any, tmp_path: Path) -> None:
    path = reports.render(study_of_a_thousand_runs(tmp_path, seeds=100, steps=100))
    assert path.stat().st_size < 2.5e6
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < 2
    wait_until(page, "document.getElementById('run-count').textContent !== ''")
    assert page.text_content("#run-count") == "10000 of 10000 runs, the first 200 shown"
    page.evaluate(
        "(b => { b.value = 'arm 099'; b.dispatchEvent(new Event('input')); })(document.getElementById('run-filter'))"
    )
    assert page.text_content("#run-count") == "100 of 10000 runs"
    assert page.locator(".runs tbody tr").count() == 100
    with page.expect_download() as download:
        page.evaluate("document.getElementById('run-csv').click()")
    assert len(Path(download.value.path()).read_text(encoding="utf-8").splitlines()) == 101
    opened = "document.querySelector('details:has(script.rest)')"
    page.evaluate(f"{opened}.open = true")
    wait_until(
        page, f"{opened}.querySelectorAll('tbody tr').length === 9900"
    )  # a difference for each run but the baseline's
    page.close()
