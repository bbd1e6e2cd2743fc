"""Earlier judgements of a question count, whatever became of them: arms dropped, seeds added, results watched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import ablate
import reports
from ablate.cli import main
from ablate.wings.browse.history import history
from reports.judge.findings.judging import difference_claim, differences
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import REPEATED, compare, decide
from reports.judge.statistics.simultaneous import Evidence
from reports.page.html.page import render_page
from reports.page.wording import finding_words, method_words
from store import Store, StoreError
from store.documents import LedgerRecord, LedgerTest, StudyContrast, StudyDocument, StudyRun
from tests.moderated import moderated
from tests.regression import holm
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

BASE = [2.400, 2.412, 2.391, 2.405]
ARMS = {
    "a": [2.3915, 2.4065, 2.3805, 2.4015],
    "b": [2.402, 2.408, 2.392, 2.408],
    "c": [2.397, 2.414, 2.395, 2.404],
    "d": [2.399, 2.413, 2.385, 2.405],
}
STUDIES = 400


def study_of(arms: dict[str, Sequence[float | None]]) -> StudyOf:
    return StudyOf([Arm("base", BASE), *(Arm(name, losses, steps=4) for name, losses in arms.items())], measured=False)


def rendered(root: Path, arms: dict[str, Sequence[float | None]]) -> StudySummary:
    """The study's summary after its page was drawn."""
    folder = study_of(arms).write(root)
    reports.render(folder)
    return reports.summarise(folder)


def p_of(summary: StudySummary, arm: str) -> float | None:
    (found,) = (each.comparison for each in summary.arms if each.name == arm)
    assert found is not None
    return found.p_holm


def raw_p(arms: Mapping[str, Sequence[float | None]], arm: str, base: str = "base") -> float:
    """The p of the test with the noise of all these arms and the baseline."""
    return moderated({"base": BASE, **arms}, arm, base).p


def test_dropping_arms_gives_back_nothing(tmp_path: Path) -> None:
    """Holm over four arms, at the 4 % of a first judgement."""
    raw = [raw_p(ARMS, name) for name in ARMS]
    corrected = holm(raw)[0] / 0.8
    expected = pytest.approx(corrected)
    assert raw[0] / 0.8 < 0.05 < corrected  # alone it would win
    assert p_of(rendered(tmp_path, dict(ARMS)), "a") == expected
    alone = rendered(tmp_path, {"a": ARMS["a"]})
    assert p_of(alone, "a") == expected
    assert alone.arms[1].verdict == "inconclusive"
    assert method_words.method(alone).endswith("The correction includes earlier tests of this question: b, c and d.")


def test_arms_that_come_later_are_a_round_of_their_own(tmp_path: Path) -> None:
    """Its share is 10 % of the 5 %; what was judged before stays as it was."""
    alone, both = {"a": ARMS["a"]}, {"a": ARMS["a"], "b": ARMS["b"]}
    first, later = rendered(tmp_path, alone), rendered(tmp_path, both)
    assert p_of(later, "a") == p_of(first, "a") == pytest.approx(min(1.0, raw_p(alone, "a") / 0.8))
    assert raw_p(both, "a") != pytest.approx(raw_p(alone, "a"))
    assert p_of(later, "b") == pytest.approx(min(1.0, raw_p(both, "b") / 0.1))


def test_an_interval_agrees_with_a_p_that_was_judged_with_other_noise(tmp_path: Path) -> None:
    """A loud arm beside it, and the arm is open; a quiet one later makes it no winner, nor its interval."""
    far = [2.380, 2.394, 2.372, 2.383]
    first = rendered(tmp_path, {"a": far, "loud": [2.46, 2.35, 2.44, 2.36]})
    assert first.arms[1].verdict == "better"
    p = p_of(first, "a")
    quiet = rendered(tmp_path, {"a": far, "quiet": [2.401, 2.413, 2.392, 2.4061]})
    assert p_of(quiet, "a") == p
    for summary in (first, quiet):
        found = summary.arms[1].comparison
        assert found is not None and found.difference is not None and found.p_holm is not None
        assert found.difference.excludes(0.0) == (found.p_holm < 0.05)


def test_a_page_is_counted_once(tmp_path: Path) -> None:
    for _ in range(3):
        rendered(tmp_path, dict(ARMS))
    (record,) = Store(tmp_path).read_ledger("norm_placement")
    assert [test.arm for test in record.tests] == list(ARMS)
    assert {test.seeds for test in record.tests} == {(0, 1, 2, 3)}


def test_results_that_come_in_are_shown_and_not_judged(tmp_path: Path) -> None:
    """Every arm tells of the noise of the others, so that a study is judged when all of its runs have ended."""
    summary = rendered(tmp_path, {"a": [2.300, 2.313, None, None], "b": ARMS["b"]})
    _, a, b = summary.arms
    assert a.comparison is not None
    assert a.comparison.difference is not None
    assert (a.verdict, a.comparison.p_holm) == ("no verdict", None)
    assert finding_words.sentence(summary, a).endswith("no verdict: 2 of 12 runs of this study have not ended.")
    assert (b.verdict, p_of(summary, "b")) == ("no verdict", None)
    assert "have no verdict (" in finding_words.headline(summary)
    reason = "no verdict: 2 of 12 runs of this study have not ended"
    assert reports.withheld(summary) == [f"N{reason[1:]}"]
    alone = rendered(tmp_path, {"b": ARMS["b"]})
    assert p_of(alone, "b") == pytest.approx(min(1.0, 2 * raw_p({"b": ARMS["b"]}, "b") / 0.8))  # a counts all the same


def test_what_was_looked_at_without_a_verdict_counts(tmp_path: Path) -> None:
    """Six losses are shown while the baseline lacks one run; who then keeps the best arm alone is corrected for all."""
    unfinished = StudyOf(
        [Arm("base", [*BASE[:3], None]), *(Arm(n, x, steps=4) for n, x in ARMS.items())], measured=False
    )
    reports.render(unfinished.write(tmp_path))
    (record,) = Store(tmp_path).read_ledger("norm_placement")
    assert [test.p for test in record.tests] == [None] * len(ARMS)
    alone = rendered(tmp_path, {"a": ARMS["a"]})
    assert p_of(alone, "a") == pytest.approx(min(1.0, len(ARMS) * raw_p({"a": ARMS["a"]}, "a") / 0.8))


def test_nothing_is_kept_before_a_run_has_ended_and_nothing_of_smoke(tmp_path: Path) -> None:
    none = StudyOf([Arm("base", [None] * 4), Arm("a", [None] * 4, steps=4)], measured=False)
    reports.render(none.write(tmp_path))
    smoke = study_of(dict(ARMS))
    folder = smoke.write(tmp_path)
    document = smoke.document().model_copy(update={"scale": "smoke"})
    Store(tmp_path).study("norm_placement", "cpu").write(document)
    reports.render(folder)
    assert Store(tmp_path).read_ledger("norm_placement") == ()


def test_seeds_that_were_looked_at_may_be_added_to_and_not_left_out(tmp_path: Path) -> None:
    rendered(tmp_path, {"a": [*ARMS["a"][:3], None]})
    _, fewer = rendered(tmp_path / "fewer", {"a": ARMS["a"][:3]}).arms
    assert fewer.verdict != "no verdict"  # in a store of its own
    _, fewer = rendered(tmp_path, {"a": ARMS["a"][:3]}).arms
    assert (fewer.verdict, fewer.withheld) == ("no verdict", REPEATED)


def test_rates_written_down_after_tuning_do_not_take_its_noise_away() -> None:
    """The same arms at the same rates: judged with room for tuning, then as if nothing had been tuned."""
    test = LedgerTest(
        arm="a",
        baseline="base",
        arm_identity="a",
        baseline_identity="b",
        seeds=(0, 1, 2),
        looks=(),
        margin=None,
        tuned=True,
        p=0.5,
        p_tie=None,
    )
    written = test.model_copy(update={"tuned": False, "p": 0.001})
    ledger = [LedgerRecord(judged="2026-11-24T00:00:00+00:00", scale="cpu", tests=(test,))]
    evidence = {difference_claim(written): Evidence(-0.1, 0.001, lambda _level: (-0.2, -0.01))}
    assert differences([written], evidence, ledger) == {}
    assert differences([test], {difference_claim(test): Evidence(-0.1, 0.5, lambda _level: (-0.2, 0.1))}, ledger)
    later = [*ledger, LedgerRecord(judged="2026-11-25T00:00:00+00:00", scale="cpu", tests=(written,))]
    assert history(later)["p"].to_list() == [0.5]


def copied(root: Path, arms: dict[str, Sequence[float | None]], name: str = "copy") -> Path:
    """The folder of a study of these arms under another name, in the same store."""
    given = study_of(arms)
    given.write(root)
    folder = Store(root).study(name, "cpu")
    folder.write(given.document().model_copy(update={"name": name}))
    return folder.path


def test_a_copy_under_another_name_asks_the_same_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that has the same runs asks the same question. Arms that it leaves out count, and so do those that it
    adds."""
    whole = rendered(tmp_path, dict(ARMS))
    for name, arms in (("copy", {"a": ARMS["a"]}), ("third", {"a": ARMS["a"], "e": [x + 0.01 for x in ARMS["b"]]})):
        folder = copied(tmp_path, arms, name)
        assert p_of(reports.summarise(folder), "a") == pytest.approx(p_of(whole, "a"))
        reports.render(folder)
        again = reports.summarise(folder)
        assert p_of(again, "a") == pytest.approx(p_of(whole, "a"))
        assert method_words.method(again).endswith(
            "The correction includes earlier tests of this question: b, c and d."
        )
    e = again.arms[2].comparison
    assert e is not None and e.test is not None and e.test.p is not None
    assert p_of(again, "e") == pytest.approx(min(1.0, e.test.p / 0.1))  # a second round
    assert main(["ledger", "copy", "--json", "--store", str(tmp_path)]) == 0
    printed = {row["arm"]: row["p_corrected"] for row in json.loads(capsys.readouterr().out)}
    assert printed["a"] == pytest.approx(p_of(whole, "a")) and printed.keys() == {*ARMS, "e"}
    assert p_of(reports.summarise(study_of(dict(ARMS)).write(tmp_path)), "a") == pytest.approx(p_of(whole, "a"))


def test_what_was_judged_of_other_runs_is_another_question(tmp_path: Path) -> None:
    rendered(tmp_path, {"b": ARMS["b"]})
    alone = reports.summarise(copied(tmp_path / "alone", {"a": ARMS["a"]}))
    assert p_of(reports.summarise(copied(tmp_path, {"a": ARMS["a"]})), "a") == pytest.approx(p_of(alone, "a"))


def test_seeds_chosen_under_another_name_are_named(tmp_path: Path) -> None:
    """A copy of a study's file has a ledger of its own, and the seeds of its arms are as used as before."""
    rendered(tmp_path, {"a": ARMS["a"]})
    chosen = StudyOf([Arm("base", BASE[:3]), Arm("a", ARMS["a"][:3], steps=4)], measured=False)
    document = chosen.document().model_copy(update={"name": "copy"})
    chosen.write(tmp_path)
    folder = Store(tmp_path).study("copy", "cpu")
    folder.write(document)
    _, a = reports.summarise(folder.path).arms
    assert (a.verdict, a.withheld) == ("no verdict", REPEATED)


def test_seeds_added_after_a_verdict_take_it_away(tmp_path: Path) -> None:
    rendered(tmp_path, {"a": ARMS["a"][:3], "b": ARMS["b"][:3]})
    summary = rendered(tmp_path, {"a": ARMS["a"], "b": ARMS["b"][:3]})
    _, a, b = summary.arms
    assert (a.verdict, b.verdict) == ("no verdict", "inconclusive")
    assert "results of some of these seeds were shown before" in finding_words.sentence(summary, a)
    assert "seeds: auto" in finding_words.sentence(summary, a)


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    rendered(tmp_path, dict(ARMS))
    path = Store(tmp_path).ledger_path("norm_placement")
    path.write_text('{"judged": 3}\n' + path.read_text())
    with pytest.raises(StoreError, match=r"norm_placement\.ndjson:2: its checksum does not match: restore the file"):
        reports.summarise(Store(tmp_path).study("norm_placement", "cpu").path)


def test_declared_contrasts_are_corrected_with_the_rest(tmp_path: Path) -> None:
    """c − d beside four arms against the baseline: Holm over five."""
    study = study_of(dict(ARMS)).document()
    declared = study.model_copy(update={"contrasts": (StudyContrast(arm="c", other="d"),)})
    folder = study_of(dict(ARMS)).write(tmp_path)
    Store(tmp_path).study("norm_placement", "cpu").write(declared)
    summary = reports.summarise(folder)
    raw = [*(raw_p(ARMS, name) for name in ARMS), raw_p(ARMS, "c", "d")]
    expected = [min(1.0, p / 0.8) for p in holm(raw)]
    assert [each.comparison.p_holm for each in summary.judgements] == pytest.approx(expected)
    (line,) = reports.contrasts(summary)
    assert line.startswith("c − d: +0.0020 ± 0.0")
    assert "c − d" in render_page(summary)
    assert [test.baseline for test in summary.tests] == ["base"] * 4 + ["d"]


def test_the_ledger_is_read_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three arms, then one more: corrected as on the pages, or decided one by one at LORD++'s levels."""
    rendered(tmp_path, {name: ARMS[name] for name in "abc"})
    later = rendered(tmp_path, {name: ARMS[name] for name in "ad"})
    frame = ablate.open(tmp_path).ledger("norm_placement")
    assert frame["arm"].to_list() == list("abcd")
    assert frame["round"].to_list() == [1, 1, 1, 2]
    first, second = ({name: ARMS[name] for name in names} for names in ("abc", "ad"))
    expected = [*(raw_p(first, name) for name in "abc"), raw_p(second, "d")]
    assert frame["p"].to_list() == pytest.approx(expected)
    assert [frame["p_corrected"][0], frame["p_corrected"][3]] == [p_of(later, "a"), p_of(later, "d")]
    assert frame["significant"].to_list() == [p < 0.05 for p in frame["p_corrected"]]
    online = ablate.open(tmp_path).ledger("norm_placement", "lord")
    assert online["level"][0] == pytest.approx(0.005 * 0.07720838 * np.log(2))  # W₀ · γ₁
    assert online["significant"].to_list() == [
        p <= level for p, level in zip(online["p"], online["level"], strict=True)
    ]
    assert main(["ledger", "norm_placement", "--store", str(tmp_path), "--fdr", "saffron"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("base") == 5  # baseline, above four of them
    assert "significant: p ≤ level" in printed
    assert main(["ledger", "norm_placement", "--store", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "level" not in printed
    assert "4 of 5 for the first round" in printed
    assert main(["ledger", "nobody", "--store", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ablate: {tmp_path}/: no comparison of a study 'nobody' has been judged\n"


def asked(arms: Sequence[int], seeds: Sequence[int]) -> StudyDocument:
    """A study of the baseline 0 and these arms."""
    document = StudyOf([Arm(str(arm), [2.4]) for arm in (0, *arms)], measured=False).document()
    runs = tuple(StudyRun(digest=f"{seed:04x}", seed=seed) for seed in seeds)
    return document.model_copy(update={"arms": tuple(arm.model_copy(update={"runs": runs}) for arm in document.arms)})


def verdicts(
    losses: NDArray[np.float64], study: StudyDocument, ledger: list[LedgerRecord]
) -> dict[int, tuple[str, float]]:
    """Verdict and mean difference by arm, of losses (arms, seeds), added to the ledger."""
    rows = [
        {"arm": arm.name, "seed": run.seed, "loss": float(losses[int(arm.name), run.seed])}
        for arm in study.arms
        for run in arm.runs
    ]
    found = compare(study, finished(rows), ledger)
    tests = tuple(each.test for each in found.values() if each.test is not None)
    ledger.append(LedgerRecord(judged="2026-01-01T00:00:00+00:00", scale="cpu", tests=tests))
    return {
        int(name): (decide(each, withheld=each.repeated), each.difference.mean if each.difference else 0.0)
        for (name, _), each in found.items()
    }


def claims(found: dict[int, tuple[str, float]]) -> bool:
    return any(verdict in ("better", "worse") for verdict, _ in found.values())


def dropper(losses: NDArray[np.float64]) -> bool:
    """Judges six arms, then shows the best of them alone."""
    ledger: list[LedgerRecord] = []
    first = verdicts(losses, asked(range(1, 7), range(4)), ledger)
    best = min(first, key=lambda arm: first[arm][1])
    return claims(verdicts(losses, asked([best], range(4)), ledger))


def adder(losses: NDArray[np.float64]) -> bool:
    """Adds seeds to one arm until there is a verdict."""
    ledger: list[LedgerRecord] = []
    return any(claims(verdicts(losses, asked([1], range(seeds)), ledger)) for seeds in range(3, 12))


def searcher(losses: NDArray[np.float64]) -> bool:
    """Tries one arm after the other until one wins."""
    ledger: list[LedgerRecord] = []
    return any(claims(verdicts(losses, asked([arm], range(4)), ledger)) for arm in range(1, 7))


def refresher(losses: NDArray[np.float64]) -> bool:
    """Asks the same of fresh seeds until they say yes."""
    ledger: list[LedgerRecord] = []
    return any(claims(verdicts(losses, asked([1], range(start, start + 3)), ledger)) for start in range(0, 12, 3))


@pytest.mark.slow
@pytest.mark.parametrize("route", [dropper, adder, searcher, refresher])
def test_a_question_keeps_its_error_rate_however_it_is_asked(route: object) -> None:
    """Identical arms. The bound is what a binomial test at 1 % allows at a true rate of 5 %."""
    assert callable(route)
    draw = np.random.default_rng(11)
    wrong = sum(route(draw.normal(2.3, 0.01, (7, 12))) for _ in range(STUDIES))
    print(f"{route.__name__}: {wrong} of {STUDIES} questions name a winner of identical arms")
    assert stats.binomtest(wrong, STUDIES, 0.05, alternative="greater").pvalue > 0.01


def _asked(arm: str, seeds: tuple[int, ...], p: float, *, rate: str = "", budget: str = "") -> LedgerTest:
    """A test of an arm against the base, both at a rate and a budget."""
    return LedgerTest(
        arm=arm,
        baseline="base",
        arm_identity=f"{arm}{budget}{rate}",
        baseline_identity=f"base{budget}{rate}",
        question=(f"{arm}{budget}", f"base{budget}"),
        seeds=seeds,
        looks=(),
        margin=None,
        at=len(seeds),
        p=p,
        p_tie=None,
    )


def test_another_budget_is_another_question_and_another_rate_is_not() -> None:
    """A short run first, then the long one: the long one is judged at 4 %, as if the short one had never been."""
    short, long = _asked("a", (0, 1), 0.3, budget="short"), _asked("a", (0, 1), 0.004)
    retuned, fresh = _asked("a", (2, 3), 0.004, rate="higher"), _asked("b", (0, 1), 0.004)
    ledger = [
        LedgerRecord(judged=f"2026-11-2{day}T12:00:00+00:00", scale="cpu", tests=(each,))
        for day, each in enumerate((short, long))
    ]

    def corrected(test: LedgerTest, known: list[LedgerRecord]) -> float | None:
        evidence = {difference_claim(test): Evidence(-0.1, 0.004, lambda _level: (-0.2, -0.01))}
        return differences([test], evidence, known)[difference_claim(test)].p

    assert corrected(long, ledger[:1]) == pytest.approx(0.004 / 0.8)
    assert corrected(retuned, ledger) == corrected(fresh, ledger) == pytest.approx(0.004 / 0.1)
    assert history(ledger).select("question", "round").rows() == [(1, 1), (2, 1)]
    old = [
        record.model_copy(update={"tests": (record.tests[0].model_copy(update={"question": ()}),)}) for record in ledger
    ]
    assert corrected(fresh, old) == pytest.approx(0.004 / (0.2 / 6)), "of a store from before, all are one question"


def test_a_margin_that_is_set_once_the_difference_is_known_shows_nothing(tmp_path: Path) -> None:
    """Four hundredths better, and then the same to within five: the margin was chosen for it."""
    far = {"a": [loss - 0.04 for loss in (2.401, 2.411, 2.392, 2.4045)]}
    assert rendered(tmp_path, far).arms[1].verdict == "better"
    folder = Store(tmp_path).study("norm_placement", "cpu")
    document = folder.read()
    assert document is not None
    folder.write(document.model_copy(update={"margin": 0.05}))
    for _ in range(2):  # nor once it was recorded with the margin
        reports.render(folder.path)
        late = reports.summarise(folder.path)
        assert late.arms[1].verdict == "better"
        assert any(text.startswith("The margin of 0.05 nats was set after these seeds") for text in late.warnings)
    first = tmp_path / "first"
    study = study_of(far).document().model_copy(update={"margin": 0.05})
    study_of(far).write(first)
    Store(first).study("norm_placement", "cpu").write(study)
    assert reports.summarise(Store(first).study("norm_placement", "cpu").path).arms[1].verdict == "no difference"


def test_a_p_that_stands_says_so_where_the_arms_beside_it_are_gone(tmp_path: Path) -> None:
    whole = rendered(tmp_path, dict(ARMS))
    assert "First look at this question: its tests use 4 %" in method_words.method(whole)
    alone = method_words.method(rendered(tmp_path, {"a": ARMS["a"]}))
    assert "These tests belong to the first look at this question, and use 4 %" in alone
    assert "The p-value of a is that of the first judgement, made with the noise estimate of that time." in alone
    assert "p-value of" not in method_words.method(whole)
