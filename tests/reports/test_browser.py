"""The page in a real browser: drawn, quiet, offline, and fitting narrow and wide screens."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

import reports
from ablate.wings.serve.site import render_site
from ablate.wings.serve.trade_offs import Studied, render_trade_offs
from reports.page.sections import summarise_study
from tests.reports.browsing import no_chromium, playwright, visit, wait_until
from tests.reports.factory import HOSTILE, SEEN, Arm, StudyOf, typical
from tests.reports.test_page import HOSTILE_STUDY

pytestmark = [no_chromium, pytest.mark.processes]

WIDE = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .drawing, pre') && "
DRAWN = """() => [...document.querySelectorAll('.drawing')].map(div => ({
  key: div.id,
  marks: div.querySelectorAll('.scatterlayer .trace path, .scatterlayer .trace .point').length,
  height: div.getBoundingClientRect().height,
}))"""
CUT = """() => [['.textpoint text', '.nsewdrag'], ['[class*=xtitle]', '.main-svg']].flatMap(([text, frame]) =>
  [...document.querySelectorAll(`.drawing ${text}`)].filter(name => {
    const whole = name.closest('.drawing').querySelector(frame).getBoundingClientRect();
    const own = name.getBoundingClientRect();
    return own.left < whole.left - 1 || own.right > whole.right + 1;
  })).map(name => name.textContent)"""
"""Names beside points, and titles of axes, that run out of their drawing."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.render(typical().write(tmp_path_factory.mktemp("typical")))


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.render(HOSTILE_STUDY.write(tmp_path_factory.mktemp("hostile")))


@pytest.mark.parametrize("width", [390, 1280, pytest.param(2560, marks=pytest.mark.slow)])
def test_every_figure_is_drawn_nothing_overflows_or_is_uploaded(
    browser: playwright.Browser, report: Path, width: int
) -> None:
    found = visit(browser, report, width)
    for drawn in found.page.evaluate(DRAWN):
        assert drawn["marks"] > 0, drawn
        assert drawn["height"] > 100, drawn
    assert len(found.page.evaluate(DRAWN)) == 7
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.page.evaluate(f"{WIDE} e.getBoundingClientRect().right > innerWidth + 1).length") == 0
    titles = found.page.eval_on_selector_all(".modebar-btn", "all => all.map(e => e.dataset.title.toLowerCase())")
    assert any("png" in title for title in titles)
    assert not any(word in title for title in titles for word in ("cloud", "plotly", "studio", "share", "upload"))
    costs = found.page.locator("[data-figure=trade-off] select").first
    for option in costs.locator("option").all():
        costs.select_option(option.get_attribute("value"))
        found.page.wait_for_timeout(200)
        assert found.page.evaluate(CUT) == []
    assert found.messages == []
    assert found.requests == [report.as_uri()]
    found.page.close()


def test_long_names_beside_points_fit_a_phone(browser: playwright.Browser, tmp_path: Path) -> None:
    names = [f"arm_with_a_long_name_{place}" for place in range(4)]
    study = StudyOf([Arm(name, [2.4 - place / 50, 2.41, 2.39]) for place, name in enumerate(names)])
    page = tmp_path / "trade-offs.html"
    page.write_text(render_trade_offs([Studied(summarise_study(study.write(tmp_path)), "report.html")]))
    told = "[...document.querySelectorAll('.textpoint text')].map(name => name.textContent)"
    phone, screen = (visit(browser, page, width).page for width in (390, 1280))
    assert phone.evaluate(CUT) == screen.evaluate(CUT) == []
    assert all(name.startswith("arm_") and name.endswith("…") for name in phone.evaluate(told))
    assert [name.partition(": ")[2] for name in screen.evaluate(told)] == names[1:]
    for each in (phone, screen):
        each.close()


def test_what_probes_saw_is_drawn(browser: playwright.Browser, tmp_path: Path) -> None:
    report = reports.render(replace(typical(20), probes=(*SEEN, "log_z")).write(tmp_path))
    found = visit(browser, report)
    drawn = found.page.evaluate(DRAWN)
    assert {each["key"] for each in drawn} >= {"gradient-norm-by-depth", "log-z-by-step", "expert-load-by-step"}
    assert all(each["marks"] > 0 and each["height"] > 100 for each in drawn)
    assert found.messages == []
    found.page.close()


def test_hostile_names_are_text_in_the_page_and_in_the_figures(
    browser: playwright.Browser, hostile_report: Path
) -> None:
    found = visit(browser, hostile_report)
    assert found.page.text_content(".study") == f"{HOSTILE} scale cpu"
    assert found.page.text_content("h1") == HOSTILE_STUDY.question
    assert found.page.title() == f"{HOSTILE} (cpu)"
    legends = found.page.eval_on_selector_all("#losses .legendtext", "all => all.map(e => e.textContent)")
    assert legends == [HOSTILE, "<b>x</b></script>"]
    ticks = found.page.eval_on_selector_all("#eval-differences .ytick text", "all => all.map(e => e.textContent)")
    assert set(ticks) == {"<b>x</b></script>"}
    assert found.messages == []
    found.page.close()


def test_inline_scripts_that_are_not_ours_do_not_run(browser: playwright.Browser, report: Path, tmp_path: Path) -> None:
    """Should escaping ever fail, the policy still stops what was injected."""
    spoiled = tmp_path / "spoiled.html"
    text = report.read_text(encoding="utf-8")
    spoiled.write_text(text.replace("<main>", "<main><script>window.injected = 1</script>"), encoding="utf-8")
    found = visit(browser, spoiled)
    assert found.page.evaluate("window.injected") is None
    assert "Content Security Policy" in found.messages[0]
    found.page.close()


def test_paper_is_white_and_nothing_runs_off_it(browser: playwright.Browser, report: Path) -> None:
    found = visit(browser, report, scheme="dark")
    page, widths = found.page, "[...document.querySelectorAll('.drawing .main-svg')].map(svg => svg.clientWidth)"
    before = page.evaluate(widths)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 980})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    wait_until(page, f"{widths}.every(width => width <= 660)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 690
    beyond = "[...document.querySelectorAll('td, th, h2, p')].filter(e => e.getBoundingClientRect().right > 691)"
    assert page.evaluate(f"{beyond}.map(e => e.textContent)") == []
    high = "[...document.querySelectorAll('.results tbody tr, .runs tbody tr')].map(row => row.offsetHeight)"
    assert max(page.evaluate(high)) < 100  # no word is broken into letters
    ink = "getComputedStyle(document.querySelector('#losses .xtick text')).fill"
    assert page.evaluate(f"[{ink}, getComputedStyle(document.body).color]") == ["rgb(30, 34, 39)"] * 2
    assert not page.is_visible(".controls")
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_until(page, f"{widths}.join() === '{','.join(map(str, before))}'")
    assert found.messages == []
    page.close()


MANY = StudyOf(
    [
        Arm(f"an-arm-with-a-name-of-forty-characters-{i}", [2.4 + i / 50, None, 2.41 + i / 60, *[2.4 + i / 99] * 4])
        for i in range(9)
    ],
    question="Which one? " * 30,
)
PARTIAL = {
    "many arms with long names": MANY,
    "nothing but failures": StudyOf([Arm("base", [9.9], diverged=[0]), Arm("arm", [9.9], diverged=[0])]),
    "nothing yet": StudyOf([Arm("base", [None, None]), Arm("arm", [None, None])]),
    "one seed, not evaluated": StudyOf([Arm("base", [2.4]), Arm("arm", [2.3])], measured=False),
}


@pytest.mark.parametrize("name", PARTIAL)
def test_odd_studies_fit_a_phone(browser: playwright.Browser, tmp_path: Path, name: str) -> None:
    found = visit(browser, reports.render(PARTIAL[name].write(tmp_path)), 390)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert found.page.evaluate(f"{WIDE} e.getBoundingClientRect().right > innerWidth + 1).length") == 0
    assert found.messages == []
    found.page.close()


def test_axe_finds_no_broken_rule(browser: playwright.Browser, report: Path) -> None:
    """A report, the index and the trade-offs of all studies break no rule of axe."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe is not installed")
    source = (resources.files(axe) / "axe.min.js").read_text(encoding="utf-8")
    index = render_site(report.parents[2])
    for path in (report, index, index.with_name("trade-offs.html")):
        page = visit(browser, path).page
        page.evaluate(source)
        found = page.evaluate("axe.run()")
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == [], path
        assert len(found["passes"]) > 25
        page.close()


def test_every_control_is_reached_by_keyboard_and_shows_it(browser: playwright.Browser, report: Path) -> None:
    found = visit(browser, report)
    page = found.page
    able = "a[href], button, input, select, summary, [tabindex='0']"
    shown = f"[...document.querySelectorAll(`{able}`)].filter(e => e.checkVisibility() && !e.closest('.drawing'))"
    count = page.evaluate(f"{shown}.length")
    page.evaluate(f"{shown}.forEach((e, i) => e.dataset.place = i)")
    reached = set()
    drawn = page.evaluate("document.querySelectorAll('.drawing button').length")
    for _ in range(count + drawn + 30):
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "[document.activeElement.dataset.place, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if place is not None:
            assert outline == "solid", place
            reached.add(int(place))
    assert reached == set(range(count))
    page.close()


def test_dark_mode_follows_the_system_at_once(browser: playwright.Browser, report: Path) -> None:
    found = visit(browser, report, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.querySelector('#losses .xtick text')).fill"
    dark = found.page.evaluate(f"[{ground}, {text}]")
    texts = "[...document.querySelectorAll('.drawing svg text')].filter(e => e.textContent && e.checkVisibility())"
    fills = found.page.evaluate(f"[...new Set({texts}.map(e => getComputedStyle(e).fill))]")
    assert fills == [dark[1]]  # of every panel of every figure
    found.page.emulate_media(color_scheme="light")
    wait_until(found.page, f"{text} !== '{dark[1]}'")
    light = found.page.evaluate(f"[{ground}, {text}]")
    assert dark[0] != light[0]
    assert found.messages == []
    found.page.close()
