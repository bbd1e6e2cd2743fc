"""A seed that ended far from its arm's others without failing is named, and counts like them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import reports
from reports.judge.findings.noise import study_noise
from reports.judge.findings.verdicts import compare, decide
from reports.page.wording import finding_words
from tests.moderated import moderated
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

BASE, LIKE = [4.60, 4.61, 4.59, 4.60], [4.58, 4.60, 4.575, 4.585]
LOOKS = [{"seeds": 3, "alpha": 0.02}, {"seeds": 8, "alpha": 0.03}]


@pytest.mark.parametrize(
    ("post", "seed", "said"),
    [
        (
            [4.60, 4.59, 5.39, 4.595],
            2,
            "Seed 2 of post ended 0.79 nats above its other seeds",
        ),
        (
            [3.99, 4.59, 4.60, 4.595],
            0,
            "Seed 0 of post ended 0.6 nats below its other seeds",
        ),
        ([4.60, 4.59, 4.61, 4.60], None, ""),
        ([4.57, 4.60, 4.625, 4.61], None, ""),
        ([4.20, 4.60, 5.00, 4.70], None, ""),
    ],
)
def test_the_odd_seed_is_in_the_headline(tmp_path: Path, post: list[float], seed: int | None, said: str) -> None:
    arms = [Arm("base", BASE), Arm("like", LIKE), Arm("post", post), Arm("also", [4.55, 4.57, 4.55, 4.56])]
    summary = reports.summarise(StudyOf(arms, measured=False, looks=LOOKS).write(tmp_path))
    found = summary.arms[2].outlier
    assert (found and found.seed) == seed
    assert [arm.name for arm in summary.arms if arm.outlier] == (["post"] if said else [])
    headline = finding_words.headline(summary)
    assert said in headline
    assert ("and counts like them; without it the difference is −0.0050." in headline) == bool(said)


def test_a_difference_keeps_the_odd_seed_and_says_so(tmp_path: Path) -> None:
    losses = {"base": [4.60, 4.61, 4.59, 4.605, 4.598], "post": [4.63, 4.645, 4.617, 4.63, 5.11]}
    others = {"like": [4.58, 4.60, 4.575, 4.59, 4.58], "also": [4.55, 4.57, 4.55, 4.56, 4.545]}
    arms = [Arm(name, of) for name, of in (losses | others).items()]
    summary = reports.summarise(StudyOf(arms, measured=False).write(tmp_path))
    expected = moderated(losses | others, "post", "base")
    assert expected.worse is not None and expected.worse.mean < expected.mean
    found = summary.arms[1].comparison
    assert found is not None and found.test is not None and found.difference is not None
    assert found.seeds == (0, 1, 2, 3, 4)
    assert found.difference.mean == pytest.approx(np.mean(losses["post"]) - np.mean(losses["base"]))
    assert found.test.p == pytest.approx(expected.p)
    assert (found.difference.low, found.difference.high) == pytest.approx(expected.interval(0.04 / 3))
    headline = finding_words.headline(summary)
    assert headline.count("ended") == 1 and "Seed 4 of post ended 0.48 nats above its other seeds" in headline


@pytest.mark.parametrize("bad", [5.1, 9.0, 1e3])
def test_an_arm_that_loses_by_its_ordinary_runs_loses_whatever_its_bad_run_costs(tmp_path: Path, bad: float) -> None:
    losses = {"base": BASE, "post": [4.72, 4.73, bad], "like": LIKE}
    summary = reports.summarise(StudyOf([Arm(*each) for each in losses.items()], measured=False).write(tmp_path))
    assert [arm.verdict for arm in summary.arms] == ["baseline", "worse", "inconclusive"]
    turned = {"base": losses["post"], "post": BASE, "like": LIKE}
    summary = reports.summarise(StudyOf([Arm(*each) for each in turned.items()], measured=False).write(tmp_path / "b"))
    assert [arm.verdict for arm in summary.arms] == ["baseline", "better", "better"]


def judged(draw: np.random.Generator, bad: float, cost: float) -> tuple[bool, int]:
    """Whether any of four identical arms of five seeds is called better or worse, where each run goes wrong with
    probability `bad` and costs so much; and how many arms have an odd run."""
    losses = 2.3 + draw.normal(0, 0.02, 5) + draw.normal(0, 0.01, (4, 5)) + cost * (draw.random((4, 5)) < bad)
    study = StudyOf([Arm(f"arm{i}", row.tolist()) for i, row in enumerate(losses)]).document()
    rows = [{"arm": f"arm{i}", "seed": s, "loss": float(losses[i, s])} for i in range(4) for s in range(5)]
    runs = finished(rows)
    found = compare(study, runs).values()
    return any(decide(each) in ("better", "worse") for each in found), len(study_noise((), runs).odd)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.1, 0.3])
@pytest.mark.parametrize("bad", [0.0, 0.03, 0.1, 0.2])
def test_bad_runs_of_identical_arms_seldom_name_a_winner(bad: float, cost: float) -> None:
    draw, studies = np.random.default_rng(6), 400
    found = [judged(draw, bad, cost) for _ in range(studies)]
    wrong, named = sum(said for said, _ in found), np.mean([odd > 0 for _, odd in found])
    print(f"bad {bad}, cost {cost}: {wrong} of {studies} name a winner, {named:.2f} an odd run")
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01
