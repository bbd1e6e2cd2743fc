"""The first screen: an answer of at most 25 words, and every arm in a row, with costs only where they differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest

import reports
from ablate.wings.search.documents import search_folder
from ablate.wings.serve.site import render_other
from reports.judge.findings.study_summary import StudySummary
from reports.page.html.page import render_page
from reports.page.html.ranked import Axis, Ranked
from reports.page.html.ranking import ranked, render_cell
from reports.page.wording import answers, finding_words, method_words
from reports.page.wording.finding_words import small_print
from reports.page.wording.short_answer import MOST_WORDS
from store import Store, StudyFolder
from store.documents import StudyClaim
from tests.documents import text_meta_of
from tests.many import few
from tests.reports.browsing import no_chromium, playwright, visit
from tests.reports.factory import Arm, StudyOf
from tests.reports.searching import search_of, trials_of

SEEDS = 5
TOKENS = 8_000_000
"""Enough that no arm is undertrained."""


def scattered(mean: float, draw: np.random.Generator, sd: float = 0.01) -> list[float]:
    return (mean + sd * draw.standard_normal(SEEDS)).tolist()


def study_of(means: Sequence[float], name: str = "many", margin: float | None = None, **costs: float) -> StudyOf:
    """Arms of these mean losses; costs are of every arm but the first."""
    draw = np.random.default_rng(0)
    arms = [
        Arm(f"arm_{place}", scattered(mean, draw), tokens_before=TOKENS, **(costs if place else {}))  # type: ignore[arg-type]
        for place, mean in enumerate(means)
    ]
    return StudyOf(arms, name=name, margin=margin, question="Which arm is best?")


def summary_of(root: Path, *args: object, **options: object) -> StudySummary:
    return reports.summarise(study_of(*args, **options).write(root))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("means", "margin", "begins", "holds"),
    [
        ([2.4, 2.3], None, "arm_1 beats arm_0 by 0.099 nats (", "at no measurable cost"),
        (
            [2.4, 2.3, 2.32, 2.5],
            None,
            "arm_1 beats arm_0 by 0.099 nats (",
            "; arm_2 is 0.089 better; arm_3 is 0.099 worse.",
        ),
        ([2.4, 2.5, 2.6], None, "arm_0 is best: arm_1 is 0.101 nats (", "; arm_2 is 0.1"),
        ([2.4, 2.4], None, "arm_1 is undecided against arm_0 (−0.0", " nats): "),
        ([2.4, 2.411], None, "arm_1 looks worse by 0.0", "; not certain yet: "),
        ([2.4, 2.4, 2.5], None, "No arm is shown to beat arm_0: arm_1 is undecided (−0.0", "; arm_2 is 0.091 worse."),
        ([2.4, 2.4, 2.4], 0.1, "arm_2 and arm_1 match arm_0 to within 0.1 nats, at the same cost.", ""),
        ([2.4, *[2.5] * 9], None, "arm_0 is best: arm_", "; 8 arms are worse too"),
    ],
)
def test_the_answer_names_the_best_arm_by_how_much_and_at_what_cost(
    tmp_path: Path, means: Sequence[float], margin: float | None, begins: str, holds: str
) -> None:
    said = answers.headline(summary_of(tmp_path, means, margin=margin))
    assert said.startswith(begins)
    assert holds in said
    assert len(said.split()) <= MOST_WORDS


@pytest.mark.parametrize(("means", "said"), [([2.4, 2.4, 2.4], "match arm_0 to within 0.1 nats"), ([2.4, 2.3], ")")])
def test_a_study_that_measures_no_speed_claims_none(tmp_path: Path, means: Sequence[float], said: str) -> None:
    """Only peak memory is known, which is that of the runs."""
    study = replace(study_of(means, margin=0.1), measured=False)
    summary = reports.summarise(study.write(tmp_path))
    assert f"{said}, with the same peak memory (speeds not measured)" in answers.headline(summary)
    told = next(each.sentence for each in answers.findings(summary) if each.name == "arm_1")
    assert "speeds not measured" in told
    assert "cost" not in finding_words.headline(summary)


@pytest.mark.parametrize("slow", [1, 2])
def test_arms_that_match_are_not_said_to_cost_the_same_if_one_is_slower(tmp_path: Path, slow: int) -> None:
    study = study_of([2.4, 2.4, 2.4], margin=0.1)
    arms = [replace(arm, speed=3500.0) if place == slow else arm for place, arm in enumerate(study.arms)]
    said = answers.headline(reports.summarise(replace(study, arms=arms).write(tmp_path)))
    assert said.endswith(f"match arm_0 to within 0.1 nats; training takes 14 % longer for arm_{slow}.")


STUCK = [5.99] * SEEDS


@pytest.mark.parametrize(
    ("losses", "options", "said"),
    [
        ([None, STUCK], {}, "Of these arms only arm_0 trains."),
        ([None, STUCK, None], {"pilot": True}, "; arm_1 does not train."),
        ([None, STUCK, 2.5], {}, "arm_0 is best: arm_2 is "),
    ],
)
def test_an_arm_that_fails_says_nothing_of_those_that_train(
    tmp_path: Path, losses: Sequence[object], options: dict[str, bool], said: str
) -> None:
    draw = np.random.default_rng(0)
    drawn = [each if isinstance(each, list) else scattered(float(each or 2.4), draw) for each in losses]  # type: ignore[arg-type]
    arms = [Arm(f"arm_{place}", of, tokens_before=TOKENS) for place, of in enumerate(drawn)]
    folder = StudyOf(arms, text=True, measured=False).write(tmp_path)
    document = StudyFolder(folder).read()
    assert document is not None
    StudyFolder(folder).write(document.model_copy(update=options))
    answer = answers.headline(reports.summarise(folder))
    assert said in answer
    assert ("only arm_0 trains" in answer) == (len(losses) == 2)


@pytest.mark.parametrize("seed", few(range(40), 6))
def test_no_answer_has_more_than_25_words(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    arms = [
        Arm(
            f"an_arm_with_a_long_name_{place}",
            [5.99] * SEEDS if draw.random() < 0.1 and place else scattered(2.4 + draw.choice([0, 0.05, -0.05]), draw),
            speed=4000 * draw.choice([1, 1.5, 0.7]),
            kv_bytes_per_token=2048 * draw.choice([1, 0.25, 2]),
            tokens_before=int(draw.choice([TOKENS, TOKENS, TOKENS, 0])),
        )
        for place in range(draw.integers(2, 12))
    ]
    summary = reports.summarise(StudyOf(arms, text=True, margin=draw.choice([None, 0.03])).write(tmp_path))
    said = answers.headline(summary)
    assert len(said.split()) <= MOST_WORDS, said
    assert said.endswith(".")
    assert answers.in_full(summary) != said


def test_a_settled_contrast_leads_where_no_arm_is_settled_against_the_baseline(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    losses = {"plain": 2.4, "plain_fast": 2.9, "normed": 2.4, "normed_fast": 2.41}
    arms = [Arm(name, scattered(loss, draw), tokens_before=TOKENS) for name, loss in losses.items()]
    study = StudyOf(arms, text=True, measured=False, contrasts=[("normed_fast", "plain_fast")])
    said = answers.headline(reports.summarise(study.write(tmp_path)))
    assert said.startswith("normed_fast beats plain_fast by 0.4")
    assert "no arm is shown to beat plain" in said and len(said.split()) <= MOST_WORDS


@pytest.mark.parametrize("against", ["full", "start"])
def test_where_a_study_claims_only_of_contrasts_these_are_its_answer(tmp_path: Path, against: str) -> None:
    draw = np.random.default_rng(0)
    losses = {"start": 2.9, "full": 2.4, "low": 2.6, "twin": 2.601, "high": 2.5}
    arms = [Arm(name, scattered(loss, draw, sd=0.002), tokens_before=TOKENS) for name, loss in losses.items()]
    claim = StudyClaim(arm="low", against=against, expect="worse", planned="2026-01-01")
    contrasts = [("low", "full"), ("twin", "low"), ("high", "low")]
    study = StudyOf(arms, text=True, measured=False, margin=0.05, contrasts=contrasts, claims=(claim,))
    said = answers.headline(reports.summarise(study.write(tmp_path)))
    if against == "start":
        assert said.startswith("full beats start by 0.")
    else:
        assert re.fullmatch(
            r"full beats low by 0\.(19|20)\d* nats \(.*\); high beats low by 0\.\d+; twin matches low\.", said
        ), said


def test_a_contrast_says_once_which_settings_its_arms_share(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    losses = {"plain": 2.4, "plain+train.lr=0.1": 2.9, "normed": 2.4, "normed+train.lr=0.1": 2.41}
    arms = [Arm(name, scattered(loss, draw), tokens_before=TOKENS) for name, loss in losses.items()]
    contrasts = [("normed+train.lr=0.1", "plain+train.lr=0.1")]
    study = StudyOf(arms, text=True, measured=False, contrasts=contrasts)
    said = answers.headline(reports.summarise(study.write(tmp_path)))
    assert said.startswith("At lr 0.1, normed beats plain by 0.4")
    assert "no arm is shown to beat plain at its own settings" in said and len(said.split()) <= MOST_WORDS


def test_a_cost_says_at_which_context(tmp_path: Path) -> None:
    page = render_cell(summary_of(tmp_path, [2.4, 2.5], kv_bytes_per_token=1024.0))
    assert ">KV cache at 256 tokens</th>" in page


def columns(figure: Ranked) -> list[str]:
    return [cost.key for cost in figure.columns]


def test_a_cost_that_no_arm_changes_is_said_and_not_drawn(tmp_path: Path) -> None:
    same = ranked(summary_of(tmp_path / "same", [2.4, 2.5]))
    assert columns(same) == []
    assert same.alike.startswith("The same KV cache")
    assert "training time per token" in same.alike and "to within 2 %" in same.alike
    half = ranked(summary_of(tmp_path / "half", [2.4, 2.5], kv_bytes_per_token=1024.0))
    assert columns(half) == ["kv-256"]
    row = next(row for row in half.rows if row.name == "arm_1")
    cell = half.cell(row, half.columns[0])
    assert cell is not None
    assert (cell.text, cell.kind, cell.interval) == ("0.50×", "cheaper", "")
    assert cell.end < 50


def test_rows_are_ranked_and_what_has_no_result_comes_last(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arms = [
        Arm("base", scattered(2.4, draw)),
        Arm("stuck", [5.99] * SEEDS),
        Arm("absent", [None] * SEEDS),
        Arm("lower", scattered(2.3, draw)),
        Arm("higher", scattered(2.5, draw)),
    ]
    arms = [replace(arm, tokens_before=TOKENS) for arm in arms]
    figure = ranked(reports.summarise(StudyOf(arms, text=True, measured=False).write(tmp_path)))
    assert [row.name for row in figure.rows] == ["lower", "base", "higher", "stuck", "absent"]
    notes = {row.name: (row.kind, row.note) for row in figure.rows if row.note}
    assert notes["stuck"] == ("failed", "all 5 seeds stalled")
    assert notes["absent"][1] == "no result for 5 of 5 runs"


def test_one_arm_far_off_leaves_room_for_the_others(tmp_path: Path) -> None:
    figure = ranked(summary_of(tmp_path, [2.4, 2.41, 2.42, 2.39, 4.4]))
    far = figure.rows[-1]
    assert far.difference is not None
    assert figure.axis.cuts(far.difference.mean)
    assert figure.axis.place(far.difference.mean) == pytest.approx(96)
    others = [figure.axis.place(row.difference.mean) for row in figure.rows[:-1] if row.difference]
    assert max(others) - min(others) > 8


def test_the_margin_is_shaded_from_end_to_end_of_it_or_of_the_axis(tmp_path: Path) -> None:
    def shades(margin: float | None, folder: str) -> tuple[Ranked, set[tuple[float, float]]]:
        summary = summary_of(tmp_path / folder, [2.4, 2.3, 2.5], margin=margin)
        found = re.findall(r'<rect class="margin" x="([\d.]+)%" width="([\d.]+)%"', render_page(summary))
        return ranked(summary), {(float(x), float(width)) for x, width in found}

    figure, shaded = shades(0.05, "inside")
    at = {text: place for place, text in figure.axis.ticks()}
    (start, width), *others = shaded
    assert [start, start + width] == pytest.approx([at["−0.05"], at["+0.05"]]) and not others
    assert shades(0.3, "beyond")[1] == {(0, 100)}
    assert shades(None, "none")[1] == set()


def test_ticks_are_round_and_stand_where_their_numbers_say() -> None:
    axis = Axis(-0.013, 0.21)
    numbers = {text: place for place, text in axis.ticks()}
    assert list(numbers) == ["0", "+0.05", "+0.10", "+0.15", "+0.20"]
    assert numbers["+0.20"] == pytest.approx(4 + 92 * (0.2 + 0.013) / 0.223, abs=0.01)


FIRST = """() => {
  const box = e => e.getBoundingClientRect();
  const shown = e => box(e).width > 1 && getComputedStyle(e).visibility !== 'hidden';
  const figure = document.querySelector('table.ranked');
  const texts = [...figure.querySelectorAll('th, td.said, td.told, td.cost, .axis text')].filter(shown);
  const meet = (a, b, from, to) => a[from] < b[to] - 1 && b[from] < a[to] - 1;
  const overlaps = (a, b) => meet(a, b, 'left', 'right') && meet(a, b, 'top', 'bottom');
  const clash = [];
  texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
    if (!a.contains(b) && !b.contains(a) && overlaps(box(a), box(b))) clash.push([a.textContent, b.textContent]);
  }));
  const losses = document.getElementById('losses');
  return {
    clash, top: box(figure).top, rows: [...figure.tBodies[0].rows].map(row => box(row).bottom),
    losses: losses ? box(losses).top + 360 : null, answer: document.querySelector('.answer').textContent,
    wide: document.documentElement.scrollWidth, firstRow: box(figure.tBodies[0].rows[0]).bottom,
  };
}"""


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize(
    ("arms", "width"),
    [
        (2, 390),
        (2, 1920),
        (8, 390),
        (8, 1280),
        *(pytest.param(40, width, marks=pytest.mark.slow) for width in (390, 1280)),
    ],
)
def test_the_first_screen_in_a_browser(browser: playwright.Browser, tmp_path: Path, arms: int, width: int) -> None:
    draw = np.random.default_rng(arms)
    means = [2.4, *(2.4 + draw.choice([-0.03, 0, 0.02, 0.1], arms - 1))]
    study = study_of(means, speed=3200.0, kv_bytes_per_token=512.0)
    grid = [replace(arm, name=f"base+block.mixer.kv_heads={i % 8}+window={i}") for i, arm in enumerate(study.arms)]
    study = replace(study, arms=grid if arms == 40 else study.arms)
    found = visit(browser, reports.render(study.write(tmp_path)), width)
    seen = found.page.evaluate(FIRST)
    assert len(seen["answer"].split()) <= MOST_WORDS
    assert seen["clash"] == []
    assert seen["wide"] <= width
    assert seen["firstRow"] < 800
    if arms == 2:
        assert seen["rows"][-1] < 844, "the whole figure, on a phone too"
    if width >= 1280 and arms <= 12:
        assert seen["rows"][-1] < 800
    if width >= 1280:
        assert seen["losses"] < 1800
    if width >= 1280 and arms == 40:
        assert "kv heads 7 · window 7" in found.page.text_content("table.ranked")
    assert found.messages == []
    found.page.close()


@pytest.mark.processes
@no_chromium
def test_the_first_screen_of_a_ladder_and_of_a_search(browser: playwright.Browser, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    arms = study_of([2.4, 2.35, 2.43]).arms
    smaller = [Arm(arm.name, scattered(mean, draw)) for arm, mean in zip(arms, (2.6, 2.3, 2.63), strict=True)]
    ladder = StudyOf(arms, smaller={"small": ("size", smaller)}, question="Does it hold at another size?")
    search = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    search.optimize(lambda trial: (trial.suggest_float("train.lr", 1e-3, 1e-1, log=True) - draw.random()) ** 2, 12)
    folder = search_folder(Store(tmp_path), "small", "cpu")
    folder.write(search_of(trials_of(search), ["train.lr"], name="small", sampler="random"))
    pages = reports.render(ladder.write(tmp_path)), render_other(folder.path)
    for page, first in zip(pages, ("table.ranked", ".drawing"), strict=True):
        found = visit(browser, page)
        answer = found.page.text_content(".answer")
        assert answer.startswith("With size (small to full), ") == (first == "table.ranked")
        assert len(answer.rpartition("cannot tell for arm_2. ")[2].split()) <= MOST_WORDS
        assert found.page.eval_on_selector(first, "e => e.getBoundingClientRect().top") < 500
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert found.messages == []
        found.page.close()


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_the_first_screen_of_a_grid_with_an_arm_that_failed(
    browser: playwright.Browser, tmp_path: Path, width: int
) -> None:
    draw = np.random.default_rng(0)
    cells = [f"kv4_full+kv_heads={heads}+window={window}" for heads in (1, 2) for window in (16, 32)]
    arms = [
        Arm(name, scattered(2.4 + i / 50, draw), tokens_before=TOKENS) for i, name in enumerate(["kv4_full", *cells])
    ]
    broken = Arm("broken", [None] * SEEDS, tokens_before=TOKENS)
    study = StudyOf([*arms, broken])
    folder, store = study.write(tmp_path), Store(tmp_path)
    for seed in range(SEEDS):
        digest = study.digest(broken, seed)
        store.run_path(digest).parent.mkdir(parents=True, exist_ok=True)
        store.write_error(digest, "ValueError: <too big>", "Traceback (most recent call last):\nValueError: <too big>")
    found = visit(browser, reports.render(folder), width)
    seen = found.page.evaluate(FIRST)
    assert (seen["clash"], found.messages) == ([], [])
    assert len(seen["answer"].split()) <= MOST_WORDS
    assert seen["wide"] <= width and seen["firstRow"] < 800
    last = found.page.locator("table.ranked tbody tr").last
    assert "broken" in last.text_content() and "ValueError: <too big>" in last.text_content()
    assert "kv heads 2 · window 32" in found.page.text_content("table.ranked")
    found.page.close()


NAMES = """() => {
  const box = e => e.getBoundingClientRect();
  const frame = box(document.querySelector('#trade-off .nsewdrag'));
  const shown = [...document.querySelectorAll('#trade-off .textpoint text')]
    .filter(e => e.textContent && e.style.visibility !== 'hidden');
  const marks = [...document.querySelectorAll('#trade-off .scatterlayer .point')];
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const trace = e => e.closest('.trace');
  const others = (name, i) => [...shown.slice(i + 1), ...marks.filter(m => trace(m) !== trace(name))];
  return {
    shown: shown.length,
    clash: shown.flatMap((a, i) =>
      others(a, i).filter(b => meet(box(a), box(b))).map(b => [a.textContent, b.textContent])),
    outside: shown.filter(e => box(e).left < frame.left - 1 || box(e).right > frame.right + 1).map(e => e.textContent),
  };
}"""


@pytest.mark.processes
@no_chromium
@pytest.mark.parametrize(
    ("arms", "width", "least"),
    [
        *((8, 390, 3), (8, 1280, 8)),
        *(pytest.param(40, width, least, marks=pytest.mark.slow) for width, least in ((390, 2), (1280, 6))),
    ],
)
def test_names_in_the_trade_off_plane_cover_nothing(
    browser: playwright.Browser, tmp_path: Path, arms: int, width: int, least: int
) -> None:
    draw = np.random.default_rng(arms)
    named = [
        Arm(f"variant_{place}", scattered(2.4 + draw.choice([0, 0.005, -0.03]), draw), tokens_before=TOKENS)
        for place in range(arms)
    ]
    caches = [2048.0, *draw.choice([512.0, 1024.0, 2048.0], arms - 1)]
    named = [replace(arm, kv_bytes_per_token=float(each)) for arm, each in zip(named, caches, strict=True)]
    found = visit(browser, reports.render(StudyOf(named).write(tmp_path)), width)
    seen = found.page.evaluate(NAMES)
    assert (seen["clash"], seen["outside"]) == ([], [])
    assert seen["shown"] >= least
    assert found.messages == []
    found.page.close()


def test_cells_of_a_grid_have_short_names_in_the_answer_and_the_figure(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    cells = ["kv4_full", "kv4_full+kv_heads=2+window=32", "kv4_full+kv_heads=1+window=32"]
    arms = [Arm(name, scattered(2.4 - place / 10, draw), tokens_before=TOKENS) for place, name in enumerate(cells)]
    summary = reports.summarise(StudyOf(arms).write(tmp_path))
    answer = answers.headline(summary)
    assert answer.startswith("kv heads 1 · window 32 beats kv4_full by 0.2")
    assert "+kv_heads" not in answer and len(answer.split()) <= MOST_WORDS
    assert [row.label for row in ranked(summary).rows] == [
        "kv heads 1 · window 32",
        "kv heads 2 · window 32",
        "kv4_full",
    ]


def test_the_small_print_names_data_vocabulary_and_context(tmp_path: Path) -> None:
    arms = (Arm("base", [2.4, 2.41]), Arm("arm", [2.3, 2.31]))
    contexts = {(arm.name, seed): {"train": {"context": 128}} for arm in arms for seed in (0, 1)}
    folder = StudyOf(arms, text=True, identities=contexts).write(tmp_path)
    store = Store(tmp_path)
    store.data("data0").write(text_meta_of(spec={"source": "prose"}))
    said = small_print(reports.summarise(folder))
    assert " · English prose · vocabulary 1,024 · context 128 · 2 seeds · " in said
    store.data("data0").write(text_meta_of(spec={"source": "hf", "path": "owner/corpus"}, vocab_size=32768))
    assert " · owner/corpus · vocabulary 32,768 · context 128 · " in small_print(reports.summarise(folder))


def test_an_arm_that_computes_the_same_is_not_called_undecided(tmp_path: Path) -> None:
    """Every seed has the baseline's loss, to the digit: no number of seeds would settle that."""
    base, worse = [2.40, 2.41, 2.39, 2.405, 2.395], [2.6, 2.62, 2.58, 2.605, 2.595]
    lost = Arm("lost", worse, diverged=range(5))
    for others, said in (
        ([], "twin computes the same as pre."),
        ([Arm("far", worse)], "; twin computes the same as pre."),
        ([Arm("again", base)], "twin and again compute the same as pre."),
        ([lost], "twin computes the same as pre; lost does not train."),
    ):
        arms = [Arm("pre", base), Arm("twin", base), *others]
        summary = reports.summarise(StudyOf(arms).write(tmp_path / str(len(said))))
        found = answers.headline(summary)
        assert found.endswith(said) and "undecided" not in found.lower(), found
        twin = next(each for each in answers.findings(summary) if each.name == "twin")
        assert "all 5 seeds have the same loss in both arms, which compute the same" in twin.sentence


def pilot_of(folder: Path, study: StudyOf) -> StudySummary:
    store = Store(folder)
    study.write(folder)
    store.study(study.name, "cpu").write(study.document().model_copy(update={"pilot": True}))
    return reports.summarise(store.study(study.name, "cpu").path)


@pytest.mark.parametrize(
    ("means", "judged", "pilot"),
    [
        ([2.4, 2.403, 2.405], "arm_1 is undecided against arm_0 (", "; estimate for arm_1, second to arm_0: "),
        (
            [2.4, 2.403, 2.394],
            "arm_2 looks better by 0.006",
            "; estimate for arm_2, with the lowest loss: ",
        ),
        ([2.4, 2.403], "arm_1 is undecided against arm_0 (", "; estimate for arm_1: "),
    ],
)
def test_the_lowest_loss_is_that_of_all_arms(tmp_path: Path, means: Sequence[float], judged: str, pilot: str) -> None:
    """The baseline counts, and of a single other arm no rank is said."""
    shape = [2.39, 2.41, 2.4, 2.395, 2.405]
    jitter = [[0.0] * SEEDS, [0.004, -0.004, 0.006, -0.006, 0.0], [-0.005, 0.005, 0.003, -0.003, 0.0]]
    arms = [
        Arm(f"arm_{place}", [a + b + mean - 2.4 for a, b in zip(shape, jitter[place], strict=True)])
        for place, mean in enumerate(means)
    ]
    assert judged in answers.headline(reports.summarise(StudyOf(arms).write(tmp_path / "judged")))
    assert pilot in answers.headline(pilot_of(tmp_path / "pilot", StudyOf(arms)))


def test_a_pilot_of_arms_that_compute_the_same_has_no_estimate(tmp_path: Path) -> None:
    base = [2.40, 2.41, 2.39, 2.405, 2.395]
    almost = [loss + 1e-7 * seed for seed, loss in enumerate(base)]
    study = StudyOf([Arm("pre", base), Arm("twin", base), Arm("again", almost)])
    summary = pilot_of(tmp_path / "pilot", study)
    assert answers.headline(summary) == "A pilot, so no verdict; twin and again compute the same as pre."
    judged = reports.summarise(study.write(tmp_path / "judged"))
    said = [*reports.notes(judged), *reports.notes(summary), answers.headline(judged), method_words.noise(judged)]
    assert not any("0.0000" in each for each in said), said


def test_reasons_have_their_code_as_code_on_the_page(tmp_path: Path) -> None:
    claim = StudyClaim(arm="arm_1", against="arm_0", expect="better", planned="2026-01-01")
    page = render_page(pilot_of(tmp_path, replace(study_of([2.4, 2.3]), claims=(claim,))))
    prose = re.sub(r"<(script|pre|style|template)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "`" not in prose, prose[prose.index("`") - 80 :][:160]
    assert prose.count("without <code>pilot: true</code>") == 2, "in the sentence on the arm, and at the claim"
