"""Interaction of a reader with a page, in a real browser."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reports
from ablate.wings.serve.site import render_site
from reports.page.sections import summarise_study
from tests.reports.browsing import ALL_DRAWN, Visit, no_chromium, visit, wait_until
from tests.reports.factory import HOSTILE, Arm, StudyOf, typical
from tests.reports.searching import write_search

pytestmark = [no_chromium, pytest.mark.processes]

POINTS = """document.getElementById('trade-off').data.map(t =>
  [t.name, t.x[0], t.y[0], t.marker.symbol, t.error_y.array[0]])"""
FOUR = StudyOf(
    [
        Arm("cheap", [2.40, 2.42], speed=5000, memory_mib=100),
        Arm("good", [2.20, 2.21], speed=3000, memory_mib=300),
        Arm("middle", [2.30, 2.31], speed=4000, memory_mib=200, flops_per_token=4e6),
        Arm("bad", [2.50, 2.52], speed=2500, memory_mib=150, diverged=[1]),
    ],
    results={("cheap", 0): {"loss_spike_steps": [5, 6]}},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FOUR.write(tmp_path_factory.mktemp("four"))


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return reports.render(folder)


@pytest.fixture(scope="module")
def opened(one_browser: Any, report: Path) -> Iterator[Visit]:
    """The report in one window, as it takes seconds to draw, for tests of different parts of it."""
    found = visit(one_browser, report)
    yield found
    found.page.close()


def choose(page: Any, figure: str, switch: str, text: str) -> None:
    page.locator(f".controls[data-figure={figure}] select[data-switch={switch}]").select_option(label=text)
    page.wait_for_timeout(40)


def test_each_axis_can_be_switched_and_points_are_paired_ratios_and_differences(opened: Visit, folder: Path) -> None:
    """Points equal those by hand: ratios are geometric means over the seeds that both have, differences those of the
    verdicts."""
    runs = summarise_study(folder).runs.filter(status="finished")
    speeds = {arm: rows["tokens_per_second"].to_list() for (arm,), rows in runs.group_by("arm")}
    memory = {arm: rows["peak_memory_bytes"].to_list() for (arm,), rows in runs.group_by("arm")}
    for label, ratio in (
        ("training time per token", lambda arm, seed: speeds["cheap"][seed] / speeds[arm][seed]),
        ("peak memory in training", lambda arm, seed: memory[arm][seed] / memory["cheap"][seed]),
        ("FLOPs per token", lambda arm, seed: 4 / 6 if arm == "middle" else 1.0),
    ):
        choose(opened.page, "trade-off", "x", label)
        points = {name: (x, y) for name, x, y, *_ in opened.page.evaluate(POINTS)}
        assert points["cheap"] == (1, 0)
        for arm, seeds, difference in (("good", 2, -0.205), ("middle", 2, -0.105), ("bad", 1, 0.10)):
            expected = math.prod(ratio(arm, seed) for seed in range(seeds)) ** (1 / seeds)
            x, y = points[arm]
            assert y == pytest.approx(difference, rel=1e-5)
            if label == "peak memory in training" and seeds == 1:
                assert x is None  # one run says nothing of how far memory scatters
            else:
                assert x == pytest.approx(expected, rel=1e-5)
        title = "document.getElementById('trade-off').layout.xaxis.title.text"
        assert opened.page.evaluate(title) == f"{label}<br>relative to cheap · better ←"
    choose(opened.page, "trade-off", "y", "difference in heldout_pairs: acc")
    assert {name for name, _, y, *_ in opened.page.evaluate(POINTS) if y is not None} == {
        "cheap",
        "good",
        "middle",
        "bad",
    }
    assert opened.messages == []


def test_an_arm_that_another_surely_beats_is_drawn_open(browser: Any, tmp_path: Path) -> None:
    """`slow` is beyond doubt slower and worse than the baseline; `noisy` may be either."""
    study = StudyOf(
        [
            Arm("base", [2.40, 2.41, 2.42, 2.39], speed=4000),
            Arm("slow", [2.60, 2.61, 2.63, 2.59], speed=2000),
            Arm("noisy", [2.80, 2.21, 2.62, 2.39], speed=2000),
        ],
    )
    found = visit(browser, reports.render(study.write(tmp_path)))
    assert {name: symbol.endswith("-open") for name, _, _, symbol, _ in found.page.evaluate(POINTS)} == {
        "base": False,
        "slow": True,
        "noisy": False,
    }
    found.page.close()


def test_a_browser_that_is_never_idle_draws_every_figure(browser: Any, report: Path) -> None:
    """Under load, none is: figures below the first screen waited for a minute and more."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script("window.requestIdleCallback = () => 0")
    page.goto(report.as_uri())
    wait_until(page, ALL_DRAWN)
    assert page.evaluate("document.querySelectorAll('.drawing').length") > 3
    page.close()


OUTSIDE = """svg => { const all = svg.getBoundingClientRect(); return [...svg.querySelectorAll('text')].filter(text => {
  const own = text.getBoundingClientRect();
  return own.left < all.left || own.right > all.right || own.top < all.top || own.bottom > all.bottom;
}).map(text => text.textContent); }"""
OVERLAPPING = """svg => { const box = name => svg.querySelector(name).getBoundingClientRect();
  return box('.gtitle').bottom > (svg.querySelector('.legend') ? box('.legend') : box('.gridlayer')).top; }"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_saved_picture_says_what_it_is_of(browser: Any, report: Path, width: int) -> None:
    """All of it: nothing runs out of the picture, or over what is drawn."""
    found = visit(browser, report, width)
    for key in ("trade-off", "losses"):
        found.page.hover(f"#{key}")
        with found.page.expect_download() as download:
            found.page.click(f"#{key} .modebar-btn[data-title*='SVG']")
        assert download.value.suggested_filename == f"norm_placement-cpu-{key}.svg"
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert "norm_placement, scale cpu" in text
        picture = browser.new_page()
        picture.set_content(text)
        svg = picture.locator("svg").first
        said = svg.locator(".gtitle").text_content().replace("\u00a0", " ")
        assert "2 seeds" in said and "2026-01-01" in said
        assert svg.evaluate(OUTSIDE) == []
        assert not svg.evaluate(OVERLAPPING)
        picture.close()
    found.page.close()


def test_all_studies_are_in_one_plane_and_the_address_keeps_what_is_chosen(browser: Any, tmp_path: Path) -> None:
    FOUR.write(tmp_path)
    replace(FOUR, name="another").write(tmp_path)
    render_site(tmp_path)
    found = visit(browser, tmp_path / "trade-offs.html")
    page = found.page
    names = "document.getElementById('trade-offs-0').data.map(trace => trace.name)"
    assert {name.split(": ")[0] for name in page.evaluate(names)} == {"norm_placement", "another"}
    select = ".controls[data-figure='trade-offs-0'] select[data-switch=x]"
    page.select_option(select, label="total parameters")
    page.fill("#arm-filter", "another")
    assert "find=another" in page.url
    page.reload()
    wait_until(page, "document.querySelectorAll('#trade-offs-0 .scatterlayer .trace').length === 3")
    assert page.locator(f"{select} option:checked").text_content().strip() == "total parameters"
    assert page.input_value("#arm-filter") == "another"
    page.locator("#trade-offs-0 .points path").first.click(force=True)
    wait_until(page, "document.querySelector('.study')?.textContent === 'another scale cpu'")
    page.close()


def test_losses_can_be_drawn_against_tokens_flops_and_seconds(opened: Visit) -> None:
    last = "document.getElementById('losses').data.filter(t => t.showlegend).map(t => t.x.at(-1))"
    per_step = {"training step": [1, 1, 1], "training tokens": [2048] * 3, "training time (s)": [0.5] * 3}
    per_step["training FLOPs"] = [2048 * flops for flops in (6e6, 6e6, 4e6)]
    for title, factors in per_step.items():
        choose(opened.page, "losses", "against", title)
        assert opened.page.evaluate(last)[:3] == pytest.approx([20 * factor for factor in factors], rel=1e-5)
    raw = "document.getElementById('losses').data.filter(t => Array.isArray(t.meta)).map(t => t.visible ?? true)"
    choose(opened.page, "losses", "shown", "averages of 5 %")
    assert not any(opened.page.evaluate(raw))
    choose(opened.page, "losses", "shown", "raw")
    assert all(opened.page.evaluate(raw))
    own = "t.mode === 'markers' && !t.hovertemplate.includes('test part')"
    marks = f"document.getElementById('losses').data.filter(t => {own})"
    assert sorted(opened.page.evaluate(f"{marks}.map(t => [t.marker.symbol, t.y.length])")) == [
        ["triangle-down-open", 2],
        ["x", 1],
    ]
    assert opened.messages == []


def test_a_chosen_arm_stands_out_in_every_figure(opened: Visit) -> None:
    opacities = """([...document.querySelectorAll('.drawing')].flatMap(div => div.data
        .filter(t => t.legendgroup).map(t => [t.legendgroup, t.opacity ?? 1])))"""
    before = opened.page.evaluate(opacities)
    opened.page.check("#arms input[data-arm=good]")
    wait_until(opened.page, f"{opacities}.filter(([arm, o]) => arm !== 'good' && o > 0.1001).length === 0")
    after = opened.page.evaluate(opacities)
    assert [pair for pair in after if pair[0] == "good"] == [pair for pair in before if pair[0] == "good"]
    assert opened.page.locator("tr.chosen").count() >= 3
    opened.page.locator("#losses .legendtoggle").nth(1).click()  # the legend takes it back
    wait_until(opened.page, "document.querySelectorAll('#arms input:checked').length === 0")
    wait_until(opened.page, f"JSON.stringify({opacities}) === JSON.stringify({before})".replace("'", '"'))
    assert opened.messages == []


def test_a_run_has_an_address_of_its_own(opened: Visit) -> None:
    opened.page.locator(".runs tbody a[href='#run-01ab00']").focus()
    opened.page.keyboard.press("Enter")
    wait_until(opened.page, "document.querySelector('#run-drawing .main-svg') !== null")
    assert opened.page.text_content("#run-title") == "good, seed 0"
    assert opened.page.evaluate("location.hash") == "#run-01ab00"
    assert opened.page.evaluate("document.getElementById('run-drawing').data[0].x.length") == 20
    opened.page.keyboard.press("Escape")
    wait_until(opened.page, "location.hash === ''")
    assert opened.messages == []


def test_runs_are_sorted_filtered_and_downloaded(opened: Visit, folder: Path) -> None:
    page = opened.page
    page.locator(".runs thead button", has_text="tokens/s").click()
    speeds = page.eval_on_selector_all(
        ".runs tbody tr", "rows => rows.map(r => Number(r.cells[9].textContent.replaceAll(',', '')))"
    )
    assert speeds == sorted(speeds)
    assert len(speeds) == 8
    page.locator(".runs thead button", has_text="tokens/s").press("Enter")
    assert page.locator(".runs th[aria-sort=descending]").count() == 1
    page.fill("#run-filter", "good finished")
    assert page.text_content("#run-count") == "2 of 8 runs"
    with page.expect_download() as download:
        page.click("#run-csv")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    expected = summarise_study(folder).runs.filter(arm="good")
    assert sorted(row["loss"] for row in rows) == sorted(str(round(loss, 7)) for loss in expected["loss"])
    assert {row["digest"] for row in rows} == set(expected["digest"])
    assert opened.messages == []


def test_a_formula_in_a_name_is_text_in_a_spreadsheet(browser: Any, tmp_path: Path) -> None:
    study = StudyOf([Arm("=1+1", [2.0], steps=4), Arm('"a",b', [2.0], steps=4)], measured=False)
    found = visit(browser, reports.render(study.write(tmp_path)))
    with found.page.expect_download() as download:
        found.page.click("#run-csv")
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [row["arm"] for row in rows] == ["'=1+1", '"a",b']
    found.page.close()


def test_a_search_is_found_in_the_index_and_opened(browser: Any, tmp_path: Path) -> None:
    typical(20).write(tmp_path)
    write_search(tmp_path, name="small")
    found = visit(browser, render_site(tmp_path))
    found.page.fill("#study-filter", "search 2 trials")
    found.page.locator(".studies li:not([hidden]) a").click()
    wait_until(found.page, "document.querySelector('.study')?.textContent === 'Search: small scale cpu'")
    assert found.messages == []
    found.page.close()


def test_studies_are_searched_sorted_and_opened(browser: Any, tmp_path: Path) -> None:
    typical(20).write(tmp_path)
    StudyOf([Arm("a", [2.0], steps=4)], name=f"{HOSTILE}%20 &", question="Why?", measured=False).write(tmp_path)
    replace(FOUR, name="another", identities={("bad", 0): {"data": {"digest": "x"}}}).write(tmp_path)
    index = render_site(tmp_path)
    found = visit(browser, index)
    page = found.page
    names = "[...document.querySelectorAll('.studies li:not([hidden]) h2')].map(e => e.firstChild.textContent)"
    page.select_option("#study-order", "name")
    assert page.evaluate(names)[-1] == "norm_placement"
    page.fill("#study-filter", "why?")
    assert page.evaluate(names) == [f"{HOSTILE}%20 &"]
    page.locator(".studies li:not([hidden]) a").click()
    wait_until(page, "document.querySelector('.study')?.textContent.startsWith('<script>')")
    assert found.messages == []
    page.close()


CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (c) => c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
  };
  const texts = [...document.querySelectorAll('main *')].filter(e => !e.closest('.drawing, dialog')
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.getClientRects().length);
  return texts.map(e => {
    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(ground(e))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.className + ' ' + e.textContent.slice(0, 40)];
  }).sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Any, report: Path, scheme: str) -> None:
    """WCAG 2.1, 1.4.3: at least 4.5 to 1."""
    found = visit(browser, report, scheme=scheme)
    found.page.check("#arms input[data-arm=good]")
    contrasts = found.page.evaluate(CONTRAST)
    assert len(contrasts) > 50
    assert contrasts[0][0] >= 4.5, contrasts[:3]
    found.page.close()
