"""The page of a search: what it found, its trials by their settings, and each trial with its runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from ablate.wings.search.documents import (
    Choices,
    Confirmed,
    Distribution,
    Range,
    SearchBase,
    TrialRecord,
    search_folder,
)
from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.search_page import draw_search, front_figure, render, render_page
from ablate.wings.search.shown.search_summary import CURVE_POINTS, SearchSummary, read_search
from ablate.wings.search.shown.search_words import closing_table, trials_table
from ablate.wings.search.shown.setting_axes import parallel, setting_axes
from ablate.wings.serve.site import render_other
from store import Store
from tests.documents import metrics_of, result_of, run_of
from tests.reports.browsing import data_of, no_chromium, playwright, visit, wait_until
from tests.reports.searching import RATE, search_of

SCORES = {0: (2.40, 600.0), 1: (2.50, 100.0), 2: (2.45, 300.0), 3: (2.60, 30.0), 4: (2.55, 300.0)}
"""Loss and bytes: trial 4 is beaten by trial 2 in both."""


def search(ways: tuple[str, str] = ("minimize", "minimize")) -> SearchSummary:
    document = search_of(
        [_trial(number, number != 4) for number in SCORES],
        ["train.lr", "block.ffn"],
        objectives=dict(zip(("loss", "kv_bytes_per_token"), ways, strict=True)),
    )
    return SearchSummary(document, ())


def _trial(number: int, best: bool) -> TrialRecord:
    return TrialRecord(
        number=number,
        state="finished",
        best=best,
        settings={"train.lr": 0.01, "block.ffn": "<b>"},
        params={"train.lr": 0.01},
        distributions={"train.lr": RATE},
        values=SCORES[number],
        reached=(SCORES[number],),
        curve={},
        runs=(),
        error=None,
    )


def test_the_front_is_a_line_of_steps_through_the_trials_that_are_not_beaten() -> None:
    others, front = front_figure(search()).drawing.data
    assert (list(others.x), list(others.y)) == ([300.0], [2.55])
    assert (list(front.x), list(front.text)) == ([30.0, 100.0, 300.0, 600.0], ["3", "1", "2", "0"])
    assert front.line.shape == "hv"  # with more bytes than a trial's, its loss can be had
    assert "block.ffn &lt;b&gt;" in front.hovertext[0]
    assert front_figure(search()).drawing.layout.xaxis.type == "log"  # 30 to 600
    assert front_figure(search(("minimize", "maximize"))).drawing.data[1].line.shape == "vh"


def test_the_headline_names_the_best_in_each_objective_and_the_table_is_in_order() -> None:
    said = search_words.headline(search())
    assert said == (
        "Trial 0 has the best loss, 2.4 on the seeds that selected it, trial 3 has the best kv_bytes_per_token, 30; 4"
        " of 5 scored trials are on the front."
    )
    assert [row[0] for row in trials_table(search(), search().best).rows] == ["0", "2", "1", "3"]
    assert "trial 0 has the best kv_bytes_per_token, 600" in search_words.headline(search(("minimize", "maximize")))
    page = render_page(search())
    assert "&lt;b&gt;" in page and 'id="front"' in page


def test_trials_that_diverged_stand_last_whichever_way_is_better() -> None:
    for ways, numbers in ((("minimize", "minimize"), "02134"), (("maximize", "minimize"), "31204")):
        found = search(ways)
        one = found.trials[1].model_copy(update={"best": False})
        diverged = one.model_copy(update={"number": 5, "values": (None, 10.0)})
        trials = (diverged, *found.trials)
        table = trials_table(SearchSummary(found.document.model_copy(update={"trials": trials}), ()), trials)
        assert "".join(row[0] for row in table.rows) == numbers + "5"


def test_settings_whose_paths_end_alike_are_given_in_full() -> None:
    paths = {"blocks.a.mixer.window": 8, "blocks.b.mixer.window": 16, "train.lr": 0.01}
    found = search()
    trials = tuple(each.model_copy(update={"settings": paths, "values": each.values[:1]}) for each in found.trials)
    one = found.document.model_copy(update={"trials": trials, "objectives": {"loss": "minimize"}})
    said = search_words.headline(SearchSummary(one, ()))
    assert said.endswith(": blocks.a.mixer.window 8, blocks.b.mixer.window 16, lr 0.01.")


def _with(trial: TrialRecord, path: str, value: object, distribution: Distribution, said: object = None) -> TrialRecord:
    changes = {
        "settings": {**trial.settings, path: value if said is None else said},
        "params": {**trial.params, path: value},
        "distributions": {**trial.distributions, path: distribution},
    }
    return trial.model_copy(update=changes)


def test_axes_of_settings_have_names_and_round_ticks() -> None:
    ratio = Distribution(name="FloatDistribution", attributes=Range(low=1.0, high=8.0, step=0.5, log=False))
    pattern = Distribution(name="C", attributes=Choices(choices=('["block"]', '["local", "block"]', "never tried")))
    trials = [_with(each, "block.ffn.d_ff", 2.0 * n, ratio, f"{2 * n}x") for n, each in enumerate(search().trials, 1)]
    trials[1:] = [_with(each, "pattern", '["local", "block"]', pattern, ["local", "block"]) for each in trials[1:]]
    rate, width, blocks = setting_axes(trials, ["train.lr", "block.ffn.d_ff", "pattern", "absent"])
    assert (rate.title, [text for _, text in rate.ticks]) == ("lr", ["0.001", "0.003", "0.01", "0.03", "0.1"])
    assert [10**at for at, _ in rate.ticks] == pytest.approx([0.001, 0.003, 0.01, 0.03, 0.1])
    assert (width.title, width.ticks) == ("d_ff (× d_model)", ((2, "2"), (4, "4"), (6, "6"), (8, "8")))
    assert (blocks.title, blocks.ticks) == ("pattern", ((0.0, "local block"),))
    assert math.isnan(blocks.places[0]) and blocks.places[1:] == (0.0,) * 4
    assert rate.share(math.log10(0.01)) == pytest.approx(0.5)


def test_parallel_coordinates_have_every_trial_where_its_settings_are() -> None:
    trials, scores = search().scored, [trial.scores[0] for trial in search().scored]
    (rate,) = setting_axes(trials, ["train.lr"])
    figure = parallel(trials, scores, [rate], "loss", "low", None)
    drawn = {number: [] for number in SCORES}  # type: dict[int, list[tuple[float, float]]]
    for trace in figure.data:
        for x, y, number in zip(trace.x, trace.y, trace.customdata, strict=True):
            if number is not None:
                drawn[number].append((x, y))
    assert drawn[3] == [(0, 1.0), (1, pytest.approx(0.5))]  # the highest loss, at a rate of 0.01 within 0.001 to 0.1
    assert drawn[0] == [(0, 0.0), (1, pytest.approx(0.5))]
    assert [trace.name for trace in figure.data] == ["others", "best half", "best tenth"]
    assert [trace.name for trace in parallel(trials, scores, [rate], "loss", "neither", None).data] == ["trials"]


def test_a_smoke_search_claims_nothing() -> None:
    found = search()
    smoke = SearchSummary(found.document.model_copy(update={"scale": "smoke"}), ())
    assert search_words.headline(smoke).startswith(
        "A smoke search only shows that it works: its runs are too short to find anything."
    )
    assert (smoke.best, trials_table(smoke, smoke.best).rows) == ((), ())
    assert len(closing_table(smoke).rows) == len(SCORES)
    assert search_words.edges(smoke) + search_words.fresh(smoke) == []
    drawn = {figure.key: figure for figure in draw_search(smoke)}
    assert all(
        "best" not in (trace.name or "") or not key.startswith(("slice", "parallel")) or not len(trace.x)
        for key, figure in drawn.items()
        for trace in figure.drawing.data
    )
    page = render_page(smoke)
    assert "The front" not in page


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a search whose trials have runs."""
    store, found = Store(tmp_path), search()
    for number in SCORES:
        digest = f"{number:02d}ab00"
        store.write_run(run_of(digest, seed=1000))
        store.append_metrics(digest, *(metrics_of(step, loss=5 - step / 100) for step in range(150)))
        if number:
            store.write_result(result_of(digest))
    trials = [trial.model_copy(update={"runs": (f"{trial.number:02d}ab00",)}) for trial in found.trials]
    folder = search_folder(store, "small", "cpu")
    folder.write(found.document.model_copy(update={"name": "small", "trials": tuple(trials)}))
    return folder.path


def test_a_trial_has_its_runs_with_their_curves(stored: Path) -> None:
    found = read_search(stored)
    run = found.runs["03ab00"]
    assert (run.seed, run.status, found.runs["00ab00"].status) == (1000, "finished", "partial")
    assert CURVE_POINTS / 2 < len(run.steps) <= CURVE_POINTS and run.steps[-1] == 149
    assert run.losses == pytest.approx([5 - step / 100 for step in run.steps])
    trial = next(each for each in data_of(render_page(found))["trials"] if each["number"] == 3)
    assert trial["scores"] == {"loss": 2.6, "kv_bytes_per_token": 30.0}
    assert trial["settings"] == {"train.lr": 0.01, "block.ffn": "<b>"}
    assert [each["logs"] for each in trial["runs"]] == ["ablate logs 03ab00"]


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_a_click_on_a_trial_opens_its_runs(browser: playwright.Browser, stored: Path, width: int) -> None:
    found = visit(browser, render_other(stored), width)
    page = found.page
    page.locator("#history-0").scroll_into_view_if_needed()
    box = page.locator("#history-0 .point").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(200)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_until(page, "document.getElementById('trial').open && document.querySelector('#trial-drawing .main-svg')")
    assert page.evaluate("location.hash") == "#trial-2"
    assert page.text_content("#trial-title") == "Trial 2, finished"
    facts = page.text_content("#trial-facts")
    assert "ablate logs 02ab00" in facts and "train.lr" in facts and "2.45" in facts
    assert page.evaluate("document.getElementById('trial').getBoundingClientRect().right") <= width
    page.locator("#trial form button").click()
    wait_until(page, "location.hash === ''")  # a dialog says that it is closed when the browser has time
    page.locator("table.trials tbody th a").first.click()
    wait_until(page, "document.getElementById('trial').open")
    assert page.text_content("#trial-title") == "Trial 0, finished"
    page.keyboard.press("Escape")
    overlaps = """() => [...document.querySelectorAll('[id^="slice-"], [id^="parallel-"]')].flatMap(figure => {
      const every = figure.querySelectorAll('[class$="tick"] text, text[class$="title"]');
      const texts = [...every].filter(e => e.textContent);
      const box = e => e.getBoundingClientRect();
      return texts.flatMap((a, i) => texts.slice(i + 1).filter(b =>
        box(a).left < box(b).right - 1 && box(b).left < box(a).right - 1 &&
        box(a).top < box(b).bottom - 1 && box(b).top < box(a).bottom - 1).map(b => [a.textContent, b.textContent]));
    })"""
    assert page.evaluate(overlaps) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.messages == []
    page.close()


TEN = {
    "block.norm_placement": "double",
    "block.ffn": "swiglu",
    "block.ffn.d_ff": "5.5x",
    "block.mixer.heads": 8,
    "block.mixer.kv_heads": 4,
    "pattern": ["local", "local", "local", "block"],
    "d_model": 96,
    "n_layers": 4,
    "train.lr": 0.01234,
    "train.weight_decay": 0.1234,
}


@pytest.mark.processes
@no_chromium
def test_ten_axes_fit_a_screen(browser: playwright.Browser, tmp_path: Path) -> None:
    one = search().trials[0].model_copy(update={"settings": TEN, "values": (2.4,), "imported": True})
    repeat = one.model_copy(update={"number": 12, "repeats": 0, "best": False, "imported": False})
    fresh = tuple(Confirmed.of(arm, (), [(2.41,), (2.4,), (2.42,)]) for arm in ("base", "trial_0"))
    base = SearchBase(name="base", runs=(), values=(2.5,))
    folder = search_folder(Store(tmp_path), "ten", "cpu")
    folder.write(search_of([one, repeat], TEN, name="ten", base=base, confirmed=fresh))
    found = visit(browser, render(folder.path), 1280)
    table = "document.querySelector('table.trials')"
    assert "± " in str(found.page.evaluate(f"{table}.textContent"))
    assert found.page.evaluate(f"{table}.scrollWidth <= {table}.closest('.scroll').clientWidth")
    found.page.close()


def test_the_headline_compares_the_best_with_the_base_on_fresh_seeds(tmp_path: Path) -> None:
    def said(*fresh: float, way: str = "minimize") -> str:
        """The answer for a base at 2.50, 2.52 and 2.48, and a trial with these scores."""
        trials = [each.model_copy(update={"values": each.values[:1]}) for each in search().trials if each.values]
        of_base = Confirmed.of("standard", ("b",), [(2.50,), (2.52,), (2.48,)])
        of_best = Confirmed.of("trial_0", ("a",), [(score,) for score in fresh])
        folder = search_folder(Store(tmp_path), "small", "cpu")
        changes = {"objectives": {"loss": way}, "base": SearchBase(name="standard", runs=("c",), values=(2.55,))}
        folder.write(search_of(trials, ["train.lr"], name="small", confirmed=(of_base, of_best), **changes))
        return search_words.headline(read_search(folder.path))

    clear = (2.30, 2.32, 2.28)
    half = stats.t.isf(0.025, 4) * 0.02 * math.sqrt(2 / 3)
    assert said(*clear).startswith(
        f"Trial 0 beats standard: loss 2.300 against 2.500 over 3 fresh seeds, a difference of −0.200 ± {half:.3f}: "
    )
    assert said(*clear, way="maximize").startswith("Trial 0 is worse than standard: ")
    assert said(2.49, 2.51, 2.47).startswith("Trial 0 is not clearly better than standard: ")
    assert said(2.51, 2.53, 2.49).startswith("Trial 0 is not better than standard: ")
    assert said(2.30, math.inf, 2.28).startswith("Trial 0 has the best loss, ")  # one seed diverged


def test_every_figure_shows_the_base_and_no_trial_is_cropped() -> None:
    base = SearchBase(name="standard", runs=("c",), values=(3.9, 700.0), params={"train.lr": 0.02})
    found = SearchSummary(search().document.model_copy(update={"base": base}), ())
    drawn = {figure.key: figure.drawing for figure in draw_search(found)}
    assert {"front", "history-0", "slice-0", "parallel-0"} <= set(drawn)
    for key, drawing in drawn.items():
        named = [trace.name for trace in drawing.data] + [note.text for note in drawing.layout.get("annotations", [])]
        assert "base" in named, key
    for key in ("history-0", "slice-0"):
        axes = [value for name, value in drawn[key].layout.items() if name.startswith("yaxis")]
        assert axes and all("range" not in axis for axis in axes), key
    (cross,) = (trace for trace in drawn["slice-0"].data if trace.name == "base")
    assert (list(cross.x), list(cross.y)) == ([pytest.approx(math.log10(0.02), abs=1e-4)], [3.9])
