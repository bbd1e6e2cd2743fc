"""Verdicts on synthetic studies: margins, looks, and error rates by simulation of whole studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.summary import open_arms
from reports.judge.findings.verdicts import compare, decide
from reports.judge.verdicts import looks
from reports.page.wording import finding_words, method_words
from store.documents import LedgerRecord
from tests.moderated import moderated
from tests.regression import holm
from tests.reports.factory import Arm, StudyOf, arm_documents

BASE = [2.400, 2.412, 2.391, 2.405]
NEAR = [2.402, 2.411, 2.392, 2.404]
LOWER = [2.300, 2.313, 2.290, 2.306]
LOOKS = [{"seeds": 3, "alpha": 0.02}, {"seeds": 5, "alpha": 0.03}]


def study_of(arms: Mapping[str, Sequence[float | None]], **kwargs: Any) -> StudyOf:
    return StudyOf([Arm(name, losses, steps=4) for name, losses in arms.items()], measured=False, **kwargs)


def summary_of(study: StudyOf, root: Path) -> StudySummary:
    return reports.summarise(study.write(root))


def verdicts(summary: StudySummary) -> dict[str, str]:
    return {arm.name: arm.verdict for arm in summary.arms}


def test_a_margin_tells_no_difference_from_not_knowing(tmp_path: Path) -> None:
    arms = {"base": BASE, "near": NEAR, "far": LOWER, "noisy": [2.30, 2.50, 2.35, 2.48]}
    assert verdicts(summary_of(study_of(arms), tmp_path / "without")) == {
        "base": "baseline",
        "near": "inconclusive",
        "far": "better",
        "noisy": "inconclusive",
    }
    summary = summary_of(study_of(arms, margin=0.01), tmp_path / "with")
    assert verdicts(summary) == {
        "base": "baseline",
        "near": "no difference",
        "far": "better",
        "noisy": "inconclusive",
    }
    assert open_arms(summary) == ("noisy",)
    _, near, far, noisy = summary.arms
    assert near.comparison is not None
    raw = [moderated(arms, name, "base").p_within(0.01) for name in ("near", "far", "noisy")]
    assert near.comparison.p_equivalence == pytest.approx(holm(raw)[0] / 0.8)
    assert near.seeds_needed is far.seeds_needed is None
    assert noisy.seeds_needed is None
    assert "no difference larger than 0.01 nats (4 seeds, p = 0.025)" in finding_words.sentence(summary, near)
    assert "nats) shows no difference from base larger than 0.01 nats" in finding_words.headline(summary)
    assert finding_words.verdict(summary, near) == "no difference > 0.01"
    assert "margin" in method_words.method(summary)


def test_a_sure_difference_within_the_margin_is_none_that_matters(tmp_path: Path) -> None:
    arms = {"base": BASE, "arm": [loss - 0.001 - 0.0001 * i for i, loss in enumerate(BASE)]}
    assert verdicts(summary_of(study_of(arms), tmp_path / "a"))["arm"] == "better"
    assert verdicts(summary_of(study_of(arms, margin=0.01), tmp_path / "b"))["arm"] == "no difference"


def test_more_seeds_are_asked_for_by_the_judging_part_alone(tmp_path: Path) -> None:
    """One arm is plainly better on the test part and open on the judging part, the other the reverse."""
    noisy = [2.30, 2.50, 2.35, 2.48]
    judged = {"base": BASE, "plain on test": noisy, "plain on judging": LOWER}
    tested = {"base": BASE, "plain on test": LOWER, "plain on judging": noisy}
    results = {(name, seed): {"judging_loss": loss} for name, by in judged.items() for seed, loss in enumerate(by)}
    arms = [Arm(name, losses) for name, losses in tested.items()]
    folder = StudyOf(arms, measured=False, results=results).write(tmp_path)
    assert open_arms(reports.summarise(folder)) == ("plain on judging",)
    assert reports.open_arms(folder) == ("plain on test",)


def test_an_arm_that_diverged_is_not_without_a_difference(tmp_path: Path) -> None:
    arms = [Arm("base", [*BASE, 2.40], steps=4), Arm("arm", [*NEAR, 9.9], steps=4, diverged=[4])]
    summary = summary_of(StudyOf(arms, measured=False, margin=0.01), tmp_path)
    assert summary.arms[1].comparison is not None
    p = summary.arms[1].comparison.p_equivalence
    assert p is None or p >= 0.05
    assert verdicts(summary)["arm"] == "inconclusive"


def test_a_win_that_diverged_seeds_forbid_is_not_open(tmp_path: Path) -> None:
    arms = [Arm("base", [*BASE, 2.40], steps=4), Arm("arm", [*LOWER, 9.9], steps=4, diverged=[4])]
    summary = summary_of(StudyOf(arms, measured=False), tmp_path)
    assert verdicts(summary)["arm"] == "inconclusive"
    assert open_arms(summary) == ()
    assert summary.arms[1].seeds_needed is None


def test_an_arm_is_judged_at_the_look_of_its_number_of_seeds(tmp_path: Path) -> None:
    """Arm a has three seeds, b five: their p-values count 0.05 / 0.02 and 0.05 / 0.03 times."""
    base, a, b = [*BASE, 2.40], [2.35, 2.37, 2.34], [2.385, 2.395, 2.380, 2.397, 2.391]
    summary = summary_of(study_of({"base": base, "a": a, "b": b}, looks=LOOKS), tmp_path)
    found = [arm.comparison for arm in summary.arms if arm.comparison is not None]
    tests = [moderated({"base": base, "a": a, "b": b}, name, "base") for name in ("a", "b")]
    raw = [test.p for test in tests]
    assert [c.test.p for c in found if c.test] == pytest.approx([raw[0] * 2.5, raw[1] / 0.6])
    assert [c.p_holm for c in found] == pytest.approx(np.divide(holm([raw[0] * 2.5, raw[1] / 0.6]), 0.8))
    for comparison, test, level in zip(found, tests, (0.02 * 0.4, 0.03 * 0.4), strict=True):
        low, high = test.interval(level)
        assert comparison.difference is not None
        assert high < 0 or comparison is found[1]
        assert comparison.difference.low == pytest.approx(low)
        assert comparison.difference.high == pytest.approx(min(high, 0.0))  # Holm's second step finds b better, too
    assert "at 3, 5 seeds" in method_words.method(summary)


def test_a_look_counts_seeds_that_were_asked_for_not_those_that_ended(tmp_path: Path) -> None:
    study = study_of({"base": [*BASE, 2.40], "arm": [*LOWER, None]}, looks=LOOKS)
    (comparison,) = (arm.comparison for arm in summary_of(study, tmp_path).arms if arm.comparison)
    assert comparison.seeds == (0, 1, 2, 3)
    assert comparison.alpha == 0.03


def test_one_seed_is_open_and_needs_an_unknown_number(tmp_path: Path) -> None:
    summary = summary_of(study_of({"base": [2.4], "arm": [2.3]}, margin=0.01), tmp_path)
    assert open_arms(summary) == ("arm",)
    assert arm_documents(summary)[1]["seeds_needed"] is None


def finished(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """A frame of runs from arm, seed and loss."""
    unknown = pl.lit(None, pl.Float64).alias("uniform")
    return pl.DataFrame(rows).with_columns(pl.lit("finished").alias("status"), unknown)


def judged(
    losses: np.ndarray, seeds: Sequence[int], schedule: Any, margin: float | None, ledger: list[LedgerRecord]
) -> list[str]:
    """Verdicts on arms with these losses (arms + 1, seeds), the baseline first, each with its own number of seeds; what
    they are of is added to the ledger."""
    names = [f"arm{i}" for i in range(len(losses))]
    arms = [Arm(name, [2.4] * count) for name, count in zip(names, seeds, strict=True)]
    study = StudyOf(arms, looks=schedule, margin=margin).document()
    rows = [
        {"arm": n, "seed": s, "loss": float(losses[i, s])}
        for i, (n, k) in enumerate(zip(names, seeds, strict=True))
        for s in range(k)
    ]
    found = compare(study, finished(rows), ledger).values()
    tests = tuple(each.test for each in found if each.test is not None)
    ledger.append(LedgerRecord(judged="2026-01-01T00:00:00+00:00", scale="cpu", tests=tests))
    return [decide(comparison) for comparison in found]


def in_rounds(losses: np.ndarray, margin: float | None = None) -> tuple[list[str], list[int]]:
    """Verdicts and seeds of a study that adds seeds to its open arms until none is open or the cap is reached. An arm
    that is settled stays so, though the others' seeds change what is known of the noise."""
    schedule = [{"seeds": look.seeds, "alpha": look.alpha} for look in looks(3, losses.shape[1])]
    seeds, found = [3] * (len(losses) - 1), ["inconclusive"] * (len(losses) - 1)
    ledger: list[LedgerRecord] = []
    for look in schedule:
        seeds = [look["seeds"] if v == "inconclusive" else n for v, n in zip(found, seeds, strict=True)]
        again = judged(losses, [max(seeds), *seeds], schedule, margin, ledger)
        settled_again = [w for v, w in zip(found, again, strict=True) if v != "inconclusive"]
        assert "inconclusive" not in settled_again
        found = again
    return found, seeds


@pytest.mark.slow
def test_studies_in_rounds_keep_their_error_rates() -> None:
    """400 studies of three arms. The bound is what a binomial test at 1 % allows at a true rate of 5 %."""
    draw, studies = np.random.default_rng(3), 400
    alike = [in_rounds(draw.normal(2.3, 0.01, (4, 12)))[0] for _ in range(studies)]
    wrong = sum(bool({"better", "worse"} & set(found)) for found in alike)
    print(f"{wrong} of {studies} studies of identical arms name a winner")
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01
    shift = np.array([[0.0], [0.02], [-0.02], [0.02]])
    unlike = [in_rounds(draw.normal(2.3, 0.005, (4, 12)) + shift, margin=0.02)[0] for _ in range(studies)]
    wrong = sum("no difference" in found for found in unlike)
    print(f"{wrong} of {studies} studies call a difference as large as the margin none")
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01


def test_a_study_in_rounds_settles_what_is_plain_first() -> None:
    losses = np.random.default_rng(4).normal(2.3, 0.002, (4, 12)) + np.array([[0.0], [0.3], [0.006], [0.0]])
    found, seeds = in_rounds(losses, margin=0.004)
    assert found == ["worse", "worse", "no difference"]
    assert seeds[0] == 3 < seeds[1] < 12


@pytest.mark.parametrize("arms", [1, 3])
def test_looks_keep_the_error_rate_over_arms(arms: int) -> None:
    """With identical arms at most 5 % of studies name any of them at any look: Holm's first step decides that."""
    studies, schedule = 20_000, looks(3, 12)
    losses = np.random.default_rng(5).normal(2.3, 0.01, (studies, arms + 1, 12))
    named, covered = np.zeros(studies, dtype=bool), np.ones(studies, dtype=bool)
    for look in schedule:
        seen = losses[..., : look.seeds]
        by_arm = seen.mean(axis=2, keepdims=True)
        rest = seen - by_arm - seen.mean(axis=1, keepdims=True) + seen.mean(axis=(1, 2), keepdims=True)
        freedom = arms * (look.seeds - 1)
        error = np.sqrt(2 * np.square(rest).sum(axis=(1, 2)) / freedom / look.seeds)
        t = abs(by_arm[:, 1:, 0] - by_arm[:, :1, 0]) / error[:, None]
        named |= t.max(axis=1) > stats.t.isf(look.alpha / arms / 2, freedom)
        covered &= t[:, 0] <= stats.t.isf(look.alpha / 2, freedom)
    assert 0.01 < named.mean() <= 0.05
    assert covered.mean() >= 0.95
