"""A seed that ended far from its arm's others without failing is named, and left out of differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import reports
from reports.findings.verdicts import compare, decide
from reports.wording import finding_words
from tests.regression import pooled
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

BASE, LIKE = [4.60, 4.61, 4.59], [4.58, 4.60, 4.575]
LOOKS = [{"seeds": 3, "alpha": 0.02}, {"seeds": 8, "alpha": 0.03}]


@pytest.mark.parametrize(
    ("post", "seed", "said"),
    [
        ([4.60, 4.59, 5.39], 2, "Seed 2 of post ended 0.81 nats above the loss expected for its arm and seed"),
        ([3.99, 4.59, 4.60], 0, "Seed 0 of post ended 0.6 nats below the loss expected for its arm and seed"),
        ([4.60, 4.59, 4.61], None, ""),
        ([4.20, 4.60, 5.00], None, ""),  # all of them scatter
    ],
)
def test_the_odd_seed_is_in_the_headline(tmp_path: Path, post: list[float], seed: int | None, said: str) -> None:
    arms = [Arm("base", BASE), Arm("like", LIKE), Arm("post", post), Arm("also", [4.55, 4.57, 4.55])]
    summary = reports.summarise(StudyOf(arms, measured=False, looks=LOOKS).write(tmp_path))
    found = summary.arms[2].outlier
    assert (found and found.seed) == seed
    assert [arm.name for arm in summary.arms if arm.outlier] == (["post"] if said else [])
    assert said in finding_words.headline(summary)


def test_a_difference_leaves_the_odd_seed_out_and_says_so(tmp_path: Path) -> None:
    """The pooled t-test without that run, over the other seeds."""
    losses = {"base": [4.60, 4.61, 4.59, 4.605, 4.598], "post": [4.62, 4.635, 4.607, 4.62, 5.1]}
    others = {"like": [4.58, 4.60, 4.575, 4.59, 4.58], "also": [4.55, 4.57, 4.55, 4.56, 4.545]}
    arms = [Arm(name, of) for name, of in (losses | others).items()]
    summary = reports.summarise(StudyOf(arms, measured=False).write(tmp_path))
    expected = pooled({**losses, **others, "post": [*losses["post"][:4], None]}, "post", "base")
    found = summary.arms[1].comparison
    assert found is not None and found.test is not None and found.difference is not None
    assert (found.usual, found.seeds) == (False, (0, 1, 2, 3))
    assert found.difference.mean == pytest.approx(expected.mean)
    assert found.test.p == pytest.approx(expected.p)
    assert "apply to runs that go well" in finding_words.headline(summary)
    assert all(each.comparison.usual for each in summary.arms[2:] if each.comparison)


def judged(draw: np.random.Generator, bad: float, cost: float) -> tuple[bool, int]:
    """Whether any of four identical arms of five seeds is called better or worse, where each run goes wrong with
    probability `bad` and costs so much; and how many comparisons leave a seed out."""
    losses = 2.3 + draw.normal(0, 0.02, 5) + draw.normal(0, 0.01, (4, 5)) + cost * (draw.random((4, 5)) < bad)
    study = StudyOf([Arm(f"arm{i}", row.tolist()) for i, row in enumerate(losses)]).document()
    rows = [{"arm": f"arm{i}", "seed": s, "loss": float(losses[i, s])} for i in range(4) for s in range(5)]
    found = compare(study, finished(rows)).values()
    return any(decide(each) in ("better", "worse") for each in found), sum(not each.usual for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.1, 0.3])
@pytest.mark.parametrize("bad", [0.0, 0.03, 0.1, 0.2])
def test_bad_runs_of_identical_arms_seldom_name_a_winner(bad: float, cost: float) -> None:
    draw, studies = np.random.default_rng(6), 400
    found = [judged(draw, bad, cost) for _ in range(studies)]
    wrong, named = sum(said for said, _ in found), np.mean([left_out > 0 for _, left_out in found])
    print(f"bad {bad}, cost {cost}: {wrong} of {studies} name a winner, {named:.2f} an odd run")
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.01
