"""The page of `ablate compare --out`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import polars as pl
import pytest

import ablate
from ablate.cli import main
from ablate.wings.compare.comparison_page import answer, comparison_page
from tests.ablate.wings.compare.test_budgets import table
from tests.many import few
from tests.reports.browsing import data_of, no_chromium, playwright, visit

LOSSES = {"pre": [4.155, 4.132, 4.14], "post": [4.296, 4.273, 4.29], "<b>": [4.0, 4.01, math.nan]}


def plain(**columns: float) -> pl.DataFrame:
    rows = [(arm, seed, loss) for arm, losses in LOSSES.items() for seed, loss in enumerate(losses)]
    frame = pl.DataFrame(rows, schema=["arm", "seed", "loss"], orient="row")
    return frame.with_columns(pl.lit(value).alias(name) for name, value in columns.items())


def test_a_page_has_the_verdicts_the_runs_and_what_was_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs <1>.csv"
    plain().write_csv(path)
    assert main(["compare", str(path), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    found = ablate.compare(path)
    assert answer(found).startswith("post is worse than pre by 0.14")
    for row in found.contrasts.iter_rows(named=True):
        assert f">{row['verdict']}<" in page
    assert page.count("<tr") > len(LOSSES) * 3
    assert "Counted as failed: seed 2 of &lt;b&gt; (NaN)." in page
    assert "<b>" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "runs &lt;1&gt;.csv" in page


def test_figures_draw_what_the_frames_say() -> None:
    found = ablate.compare(table())
    figures = data_of(comparison_page(found))["figures"]
    assert list(figures) == ["curves", "by-budget", "trade-off"]
    wide = next(trace for trace in figures["curves"]["data"] if trace["name"] == "wide")
    frame = found.by_budget.filter(arm="wide")
    assert wide["y"] == pytest.approx(frame["loss"].to_list(), rel=1e-4)
    assert wide["x"] == pytest.approx(frame["flops"].to_list(), rel=1e-4)
    points = [trace for trace in figures["by-budget"]["data"] if trace["name"] == "wide"]
    assert [point["y"][0] for point in points] == pytest.approx(frame["factor"].to_list(), rel=1e-4)
    assert answer(found).startswith("wide is better than base: effective compute ×1.2")


def test_an_advantage_that_shrinks_is_no_headline_without_that() -> None:
    shrinking = 0.03 * (pl.col("flops").log10() - 18) * (pl.col("arm") == "wide")
    found = ablate.compare(table().with_columns(loss=pl.col("loss") + shrinking - 0.02 * (pl.col("arm") == "wide")))
    last = found.compute.filter(arm="wide")["largest"].item()
    assert f", which shrinks to ×{last:.2f} at the largest budget" in answer(found)


def test_the_ends_of_a_lead_are_in_order() -> None:
    """Tuning makes the interval longer on one side, and the lead has the opposite sign of the difference."""
    rates = [
        ("pre", 0.1, 4.30),
        ("pre", 0.2, 4.14),
        ("pre", 0.4, 4.29),
        ("post", 0.1, 4.1),
        ("post", 0.2, 4.0),
        ("post", 0.4, 4.2),
    ]
    tuning = [(arm, 100 + seed, loss + 0.01 * seed, rate, "tuning") for arm, rate, loss in rates for seed in (0, 1)]
    judging = [
        (arm, seed, loss, 0.2, "judging")
        for arm, losses in {"pre": LOSSES["pre"], "post": [3.9, 3.93, 3.91]}.items()
        for seed, loss in enumerate(losses)
    ]
    frame = pl.DataFrame(tuning + judging, schema=["arm", "seed", "loss", "rate", "split"], orient="row")
    found = ablate.compare(frame, baseline="pre")
    row = found.contrasts.row(0, named=True)
    assert row["difference"] < 0 and row["high"] - row["difference"] != pytest.approx(
        row["difference"] - row["low"], rel=0.05
    )
    assert f"post is better than pre by {-row['difference']:.2f} ({-row['high']:.2f} to {-row['low']:.2f})" in answer(
        found
    )


def test_costs_have_a_trade_off_and_scores_their_own_side() -> None:
    costs = plain().with_columns(cost=pl.when(pl.col("arm") == "post").then(2.0).otherwise(1.0))
    assert list(data_of(comparison_page(ablate.compare(costs)))["figures"]) == ["trade-off"]
    page = comparison_page(ablate.compare(plain(), higher_is_better=True))
    assert "higher is better" in page
    assert "higher loss ▸" in page
    named = [page.index(f'data-arm="{name}"') for name in ("post", "pre")]
    assert named == sorted(named), "the highest first"


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize("width", few([390, 820, 1280], 1))
@pytest.mark.parametrize("kind", ["sizes", "seeds"])
def test_the_page_in_a_browser(browser: playwright.Browser, tmp_path: Path, kind: str, width: int) -> None:
    frame = table() if kind == "sizes" else plain(cost=1.0)
    path = ablate.write_comparison(ablate.compare(frame), tmp_path / "report.html")
    found = visit(browser, path, width)
    assert found.page.locator("table.ranked tbody tr").count() == 3
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.messages == []
    assert found.requests == [path.as_uri()]
    found.page.close()
