"""Outcomes of claims on synthetic studies whose differences are known, against outcomes worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.wings.science.judging_claims import JudgedClaim, in_score, judge_claims, line, score_asked
from ablate.wings.science.sections.claims import outcomes
from reports.judge.findings.next_steps import next_steps
from reports.judge.findings.study_summary import StudySummary
from reports.page.html.ranked import SHAPES
from reports.page.html.ranking import ranked
from reports.page.wording.short_answer import MOST_WORDS
from store import Store
from store.documents import StudyClaim
from tests.reports.factory import Arm, StudyOf, typical

BASE = [2.400, 2.412, 2.391, 2.405]
NEAR = (1e6,)
"""Sizes of a source within a factor of four of the arms' 750 k parameters."""
ARMS = {
    "base": BASE,
    "near": [2.402, 2.411, 2.392, 2.404],  # within 0.001 of base in the mean
    "far": [2.300, 2.313, 2.290, 2.306],  # 0.1 better
    "high": [2.501, 2.512, 2.492, 2.504],  # 0.1 worse
    "noisy": [2.300, 2.500, 2.350, 2.480],  # 0.005 worse, give or take 0.2
}


def claim(arm: str | None = None, expect: Any = None, against: str | None = "base", **more: Any) -> StudyClaim:
    if "order" in more or expect == "stalls":
        against = None
    return StudyClaim(
        **{"arm": arm, "expect": expect, "against": against, "planned": "2026-01-01", "sizes": NEAR, **more}
    )


def study_of(claims: Sequence[StudyClaim], **more: Any) -> StudyOf:
    arms = [Arm(name, losses, steps=4) for name, losses in ARMS.items()]
    given: dict[str, Any] = {"margin": 0.02, "measured": False, **more}
    return StudyOf(arms, claims=claims, **given)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    """A study of all arms, with a contrast, without claims."""
    return reports.summarise(study_of([], contrasts=[("far", "near")]).write(tmp_path_factory.mktemp("known")))


def judged(summary: StudySummary, *claims: StudyClaim) -> tuple[JudgedClaim, ...]:
    return judge_claims(replace(summary, study=summary.study.model_copy(update={"claims": claims})))


def test_the_arms_have_the_verdicts_that_outcomes_are_worked_out_from(known: StudySummary) -> None:
    assert {arm.name: arm.verdict for arm in known.arms} == {
        "base": "baseline",
        "near": "no difference",
        "far": "better",
        "high": "worse",
        "noisy": "inconclusive",
    }


LOSSES = {
    "a difference that is found": (claim("far", "better"), "holds"),
    "whatever its published size": (claim("far", "better", by=0.5), "holds"),
    "the opposite": (claim("high", "better"), "does not hold"),
    "shown to be none": (claim("near", "better"), "does not hold"),
    "a claimed size that the interval excludes": (claim("near", "better", by=0.05), "does not hold"),
    "a claimed size below the margin, within the interval": (claim("near", "better", by=1e-4), "cannot tell"),
    "open, of no claimed size": (claim("noisy", "better"), "cannot tell"),
    "open, and the size is possible": (claim("noisy", "better", by=0.05), "cannot tell"),
    "open, and the size is impossible": (claim("noisy", "better", by=1.0), "does not hold"),
    "worse, and it is": (claim("high", "worse"), "holds"),
    "worse, and it is better": (claim("far", "worse"), "does not hold"),
    "worse by what is impossible": (claim("noisy", "worse", by=1.0), "does not hold"),
    "worse by what is possible": (claim("noisy", "worse", by=0.05), "cannot tell"),
    "the same, and it is": (claim("near", "same"), "holds"),
    "the same, and it is not": (claim("far", "same"), "does not hold"),
    "the same, and it is open": (claim("noisy", "same"), "cannot tell"),
    "the baseline against an arm": (claim("base", "better", "high"), "holds"),
    "the baseline against a better arm": (claim("base", "better", "far"), "does not hold"),
    "the baseline worse than a better arm": (claim("base", "worse", "far"), "holds"),
    "a declared contrast": (claim("far", "better", "near"), "holds"),
    "a declared contrast the other way round": (claim("near", "worse", "far"), "holds"),
    "a pair that is not compared": (claim("far", "better", "high"), "cannot tell"),
    "an order that is found": (claim(order=("far", "base", "high")), "holds"),
    "an order upside down": (claim(order=("high", "base", "far")), "does not hold"),
    "an order with a tie": (claim(order=("far", "base", "near")), "does not hold"),
    "an order with an open pair": (claim(order=("far", "base", "noisy")), "cannot tell"),
    "an order with a pair that is not compared": (claim(order=("far", "near", "high")), "cannot tell"),
    "seeds that train": (claim("far", "stalls"), "does not hold"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_verdict_on_a_pair_decides_a_claim_on_its_loss(known: StudySummary, name: str) -> None:
    stated, expected = LOSSES[name]
    (found,) = judged(known, stated)
    assert found.outcome == expected, found.reason
    assert found.claim is stated


def test_the_effect_is_seen_from_the_arm_and_comes_with_what_would_have_been_seen(known: StudySummary) -> None:
    ahead, behind = judged(known, claim("far", "better"), claim("base", "worse", "far"))
    mean = float(np.mean(np.subtract(ARMS["far"], BASE)))
    assert ahead.effect is not None and behind.effect is not None
    assert ahead.effect.mean == pytest.approx(mean)
    assert (behind.effect.mean, behind.effect.low, behind.effect.high) == pytest.approx(
        (-mean, -(ahead.effect.high or 0), -(ahead.effect.low or 0))
    )
    comparison = next(arm.comparison for arm in known.arms if arm.name == "far")
    assert comparison is not None and comparison.detectable is not None
    assert ahead.seen == behind.seen == comparison.detectable.value


def test_the_pair_that_decides_an_order_is_named(known: StudySummary) -> None:
    (found,) = judged(known, claim(order=("far", "base", "noisy")))
    assert found.reason.startswith("base against noisy: ")
    assert found.effect is not None and found.effect.mean == pytest.approx(-0.0055, abs=1e-4)


def test_without_a_margin_no_two_losses_are_the_same(known: StudySummary, tmp_path: Path) -> None:
    summary = reports.summarise(study_of([claim("near", "same"), claim("near", "better")]).write(tmp_path / "with"))
    assert [each.outcome for each in outcomes(summary)] == ["holds", "does not hold"]
    without = study_of([claim("near", "same"), claim("near", "better")], margin=None)
    same, better = outcomes(reports.summarise(without.write(tmp_path / "without")))
    assert (same.outcome, better.outcome) == ("cannot tell", "cannot tell")
    assert "no margin" in same.reason


def test_a_difference_that_may_be_smaller_than_the_margin_does_not_contradict_a_claim_of_none(tmp_path: Path) -> None:
    """`far` is 0.1 better to within 0.01, `high` as much worse."""
    stated = [claim("far", "same"), claim("high", "same")]
    for margin, outcome in ((0.05, "does not hold"), (0.1, "cannot tell"), (0.2, "holds")):
        found = reports.summarise(study_of(stated, margin=margin).write(tmp_path / str(margin)))
        assert {arm.verdict for arm in found.arms if arm.name in ("far", "high")} == (
            {"no difference"} if outcome == "holds" else {"better", "worse"}
        )
        assert {each.outcome for each in outcomes(found)} == {outcome}, margin


def test_nothing_is_tested_before_all_runs_have_ended_at_smoke_and_in_pilots(
    known: StudySummary, tmp_path: Path
) -> None:
    stated = [claim("far", "better"), claim("far", "stalls"), claim(order=("far", "base"))]
    arms = [Arm("base", BASE, steps=4), Arm("far", [*ARMS["far"][:3], None], steps=4)]
    missing = reports.summarise(StudyOf(arms, claims=stated, measured=False).write(tmp_path))
    assert {each.outcome for each in outcomes(missing)} == {"not tested"}
    assert all("1 of 8 runs" in each.reason for each in outcomes(missing))
    for changes in ({"scale": "smoke"}, {"pilot": True}):
        folder = tmp_path / str(changes)
        document = study_of(stated).document().model_copy(update=changes)
        path = study_of(stated).write(folder)
        Store.of_study(path).study(document.name, "cpu").write(document)
        assert {each.outcome for each in outcomes(reports.summarise(path))} == {"not tested"}


def test_an_arm_stalls_if_all_its_seeds_fail(tmp_path: Path) -> None:
    arms = [
        Arm("base", BASE, steps=4),
        Arm("gone", BASE, steps=4, diverged=(0, 1, 2, 3)),
        Arm("some", BASE, steps=4, diverged=(0,)),
    ]
    stated = [
        *(claim(name, "stalls") for name in ("base", "gone", "some")),
        claim("gone", "worse"),
        claim("gone", "better"),
    ]
    found = outcomes(reports.summarise(StudyOf(arms, claims=stated, measured=False).write(tmp_path)))
    assert [each.outcome for each in found] == ["does not hold", "holds", "cannot tell", "holds", "does not hold"]
    assert [each.reason for each in found[:3]] == ["all 4 seeds trained", "all 4 seeds failed", "1 of 4 seeds failed"]


COSTS = {
    "a smaller cache": (claim("lean", "better", measure="kv_bytes", by=8), "holds", 0.125),
    "the same, and it is an eighth": (claim("lean", "same", measure="kv_bytes"), "does not hold", 0.125),
    "the same cache": (claim("slow", "same", measure="kv_bytes"), "holds", 1.0),
    "a smaller cache, and it is the same": (claim("slow", "better", measure="kv_bytes"), "does not hold", 1.0),
    "a larger cache": (claim("base", "worse", "lean", measure="kv_bytes"), "holds", 8.0),
    "between arms that are not compared": (claim("lean", "better", "slow", measure="kv_bytes"), "holds", 0.125),
    "more parameters": (claim("slow", "worse", measure="parameters"), "holds", 1.5),
    "slower training": (claim("slow", "worse", measure="train_time"), "holds", 1.25),
    "faster training": (claim("slow", "better", measure="train_time"), "does not hold", 1.25),
    "as fast, within a third": (claim("slow", "same", measure="train_time", by=1.3), "holds", 1.25),
    "as fast": (claim("slow", "same", measure="train_time"), "does not hold", 1.25),
    "faster decoding of the baseline": (claim("base", "better", "slow", measure="decode_time"), "holds", 0.8),
    "a speed-up that the interval excludes": (
        claim("lean", "better", measure="train_time", by=1.2),
        "does not hold",
        1.0,
    ),
    "a speed-up of unknown size": (claim("lean", "better", measure="train_time"), "cannot tell", 1.0),
    "less memory": (claim("lean", "better", measure="memory"), "holds", 0.5),
    "times between arms that are not compared": (
        claim("lean", "better", "slow", measure="train_time"),
        "not tested",
        None,
    ),
}


@pytest.fixture(scope="module")
def costly(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    """Training of `slow` takes 1.25 times as long; `lean` has an eighth of the cache and half of the memory."""
    arms = [
        Arm("base", BASE, steps=4),
        Arm("slow", BASE[::-1], steps=4, speed=3200, parameters=1_500_000),
        Arm("lean", [2.41, 2.40, 2.42, 2.39], steps=4, memory_mib=100, kv_bytes_per_token=256),
    ]
    return reports.summarise(StudyOf(arms).write(tmp_path_factory.mktemp("costly")))


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_judged_by_the_interval_of_their_ratio(costly: StudySummary, name: str) -> None:
    stated, expected, ratio = COSTS[name]
    (found,) = judged(costly, stated)
    assert found.outcome == expected, found.reason
    assert (found.effect is None) == (ratio is None)
    if found.effect is not None:
        assert found.effect.mean == pytest.approx(ratio, rel=0.02)


def test_the_smallest_visible_ratio_has_power_80_percent(costly: StudySummary) -> None:
    """P(the t-test at the interval's level finds a ratio of `seen`) = 0.8, from scipy's noncentral t."""
    (found,) = judged(costly, claim("slow", "worse", measure="train_time"))
    assert found.effect is not None and found.effect.sd is not None and found.seen is not None
    assert found.effect.low is not None and found.effect.high is not None
    n = len(found.effect.values)
    error = found.effect.sd / math.sqrt(n)
    critical = math.log(found.effect.high / found.effect.low) / 2 / error
    assert stats.nct.sf(critical, n - 1, math.log(found.seen) / error) == pytest.approx(0.8, abs=1e-6)


def test_costs_are_not_tested_at_smoke_or_without_a_measurement(costly: StudySummary, known: StudySummary) -> None:
    smoke = replace(costly, study=costly.study.model_copy(update={"scale": "smoke"}))
    (found,) = judged(smoke, claim("lean", "better", measure="kv_bytes"))
    assert (found.outcome, found.reason.partition(" ")[0]) == ("not tested", "the")
    (found,) = judged(known, claim("far", "better", measure="decode_time"))
    assert found.outcome == "not tested" and "does not time" in found.reason


ACCURACIES = {"base": (0.50, 0.53, 0.48, 0.51), "good": (0.90, 0.92, 0.90, 0.91), "like": (0.52, 0.50, 0.51, 0.49)}


def test_accuracies_are_compared_seed_by_seed(tmp_path: Path) -> None:
    results = {(a, seed): {"accuracy": value} for a, each in ACCURACIES.items() for seed, value in enumerate(each)}
    arms = [Arm(name, np.add(BASE, place * 0.01).tolist(), steps=4) for place, name in enumerate(ACCURACIES)]
    stated = [
        claim("good", "better", measure="accuracy", by=0.3),
        claim("like", "better", measure="accuracy", by=0.3),
        claim("like", "same", measure="accuracy", by=0.2),
        claim("like", "same", measure="accuracy"),
        claim("good", "worse", "like", measure="accuracy"),
    ]
    found = outcomes(reports.summarise(StudyOf(arms, claims=stated, results=results, measured=False).write(tmp_path)))
    expected = ["holds", "does not hold", "holds", "cannot tell", "does not hold"]
    assert [each.outcome for each in found] == expected, [each.reason for each in found]
    plain = stats.ttest_1samp(np.subtract(ACCURACIES["good"], ACCURACIES["base"]), 0).confidence_interval(1 - 0.05 / 5)
    assert found[0].effect is not None
    assert (found[0].effect.low, found[0].effect.high) == pytest.approx((plain.low, plain.high))


def test_a_study_whose_claims_are_about_one_score_is_answered_in_it(tmp_path: Path) -> None:
    """Losses of arms that answer nothing beyond what they were trained on say nothing of it; other studies are answered
    in the loss."""
    results = {(a, seed): {"accuracy": value} for a, each in ACCURACIES.items() for seed, value in enumerate(each)}
    arms = [Arm(name, np.add(BASE, place * 0.01).tolist(), steps=4) for place, name in enumerate(ACCURACIES)]

    def answered(name: str, *stated: StudyClaim) -> str:
        study = StudyOf(arms, claims=stated, results=results, measured=False)
        return reports.headline(reports.summarise(study.write(tmp_path / name)))

    about = {"measure": "accuracy"}
    stated = [
        claim("good", "better", by=0.3, **about),
        claim("like", "same", by=0.2, **about),
        claim("like", "same", **about),
        claim("like", "better", "good", **about),
    ]
    ends = [
        stats.ttest_1samp(np.subtract(ACCURACIES[one], ACCURACIES[other]), 0).confidence_interval(1 - 0.05 / 4)
        for one, other in (("good", "base"), ("like", "base"))
    ]
    good, like = (f"{(each.high - each.low) / 2:.3f}" for each in ends)
    assert answered("score", *stated) == (
        f"In accuracy, good beats base (+0.402 ± {good}); like matches base (0.000 ± {like}); like is undecided against"
        f" base (0.000 ± {like})."  # there is no room for the last
    )
    in_loss = answered("loss")
    assert "accuracy" not in in_loss
    assert answered("also", *stated, claim("good", "better")) == in_loss
    assert answered("cost", claim("good", "better", measure="parameters")) == in_loss
    assert answered("none trained", claim("good", "stalls", **about)) == in_loss
    (found,) = outcomes(reports.summarise(StudyOf(arms, claims=stated[:1], results=results).write(tmp_path / "one")))
    assert score_asked([replace(found, outcome="not tested")]) is None
    long = replace(found, claim=found.claim.model_copy(update={"against": " ".join(["arm"] * MOST_WORDS)}))
    assert in_score([long, found], "accuracy").count("beats") == 1, "the first claim, however long"


def test_the_result_figure_of_such_a_study_is_in_that_score(tmp_path: Path) -> None:
    """Losses, in which *like* is worse, give no verdict and ask for no seeds; neither has an arm without a claim."""
    scores = {**ACCURACIES, "other": ACCURACIES["good"]}
    results = {(a, seed): {"accuracy": value} for a, each in scores.items() for seed, value in enumerate(each)}
    arms = [Arm(name, np.add(BASE, place * 0.01).tolist(), steps=4) for place, name in enumerate(scores)]
    about = {"measure": "accuracy"}

    def summary(name: str, *stated: StudyClaim) -> StudySummary:
        return reports.summarise(StudyOf(arms, claims=stated, results=results).write(tmp_path / name))

    stated = claim("good", "better", **about), claim("like", "same", by=0.2, **about)
    asked = summary("score", *stated)
    figure = ranked(asked)
    assert figure.unit == "accuracy" and figure.margin is None
    assert {row.name: row.verdict for row in figure.rows} == {
        "good": "better",
        "other": "no verdict",
        "base": "baseline",
        "like": "no difference",
    }
    assert figure.rows[0].difference == outcomes(asked)[0].effect
    other = next(row for row in figure.rows if row.name == "other")
    assert (
        other.difference is not None
        and other.difference.low is None
        and other.aside == "no claim compares it with base"
    )
    base = next(row for row in figure.rows if row.kind == "baseline")
    assert base.said.startswith(f"accuracy {np.mean(ACCURACIES['base']):.3f}")
    marks = {row.name: row.shape for row in figure.rows}
    assert marks["good"] == SHAPES["higher"], "better, and higher"
    in_loss = ranked(summary("loss"))
    assert in_loss.unit == "nats/token"
    assert not [step for step in next_steps(asked) if step.seeds]


def test_scores_of_evaluations_are_compared_with_the_baseline(tmp_path: Path) -> None:
    bits, pairs = "heldout_text/bits_per_byte", "heldout_pairs/acc"
    stated = [
        claim("pre", "better", "post", measure=bits),
        claim("post", "better", "pre", measure=bits),
        claim("double", "better", "post", measure=pairs),
        claim("double", "better", "pre", measure=pairs),
        claim("double", "better", "post", measure="heldout_pairs/f1"),
    ]
    found = outcomes(reports.summarise(replace(typical(), claims=stated).write(tmp_path)))
    assert [each.outcome for each in found] == ["holds", "does not hold", "cannot tell", "not tested", "not tested"]
    assert found[0].effect is not None and found[1].effect is not None
    assert found[0].effect.mean == -found[1].effect.mean < 0


def test_page_notes_and_json_say_each_claim_with_its_outcome(tmp_path: Path) -> None:
    stated = [
        claim("far", "better", by=0.02, source="arXiv:2408.00118", where="1 to 27 B <b>"),
        claim("noisy", "better", edited=True),
    ]
    folder = study_of(stated).write(tmp_path)
    summary = reports.summarise(folder)
    page = reports.render(folder, summary).read_text(encoding="utf-8")
    assert "far: lower loss than base, by 0.02 nats" in page
    assert "<cite>arXiv:2408.00118, 1 to 27 B &lt;b&gt;</cite>" in page
    assert "smallest detectable difference: " in page
    assert page.count("stated 2026-01-01") == 2 and page.count("edited after a result") == 1
    first, second = (line(each) for each in outcomes(summary))
    assert first.startswith("Claim: far: lower loss than base, by 0.02 nats [arXiv:2408.00118, 1 to 27 B <b>]: holds (")
    assert second.endswith("; stated 2026-01-01, edited after a result.")
    assert [first, second] == [note for note in reports.notes(summary) if note.startswith("Claim")]
    documents: Any = reports.documents(summary)["claims"]
    assert set(documents[0]) == {*StudyClaim.model_fields, "outcome", "parameters", "effect", "seen", "reason"}
    assert documents[0]["outcome"] == "holds" and documents[0]["effect"]["mean"] == pytest.approx(-0.1, abs=2e-3)
