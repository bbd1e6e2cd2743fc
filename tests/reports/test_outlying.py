"""A seed that ended far from its arm's others without failing is named, and no seeds are foretold from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import reports
from ablate.noise.scatter import Outlier, outliers
from reports.wording import words
from tests.reports.factory import Arm, StudyOf
from tests.reports.test_verdicts import finished

BASE, LIKE = [4.60, 4.61, 4.59], [4.58, 4.60, 4.575]
LOOKS = [{"seeds": 3, "alpha": 0.02}, {"seeds": 8, "alpha": 0.03}]


@pytest.mark.parametrize(
    ("post", "seed", "said"),
    [
        ([4.60, 4.59, 5.39], 2, "Seed 2 of post ended 0.81 nats above its other seeds"),
        ([3.99, 4.59, 4.60], 0, "Seed 0 of post ended 0.6 nats below its other seeds"),
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
    assert said in words.headline(summary)
    if said:
        assert summary.arms[2].seeds_needed is None


def rows(table: np.ndarray) -> list[dict[str, object]]:
    return [
        {"arm": f"arm{arm}", "seed": seed, "loss": loss}
        for arm, losses in enumerate(table)
        for seed, loss in enumerate(losses.tolist())
    ]


def test_of_arms_with_the_same_noise_few_have_an_odd_seed() -> None:
    draw, said = np.random.default_rng(3), 0
    for _ in range(200):
        table = 4 + draw.normal(0, 0.02, (4, 1)) + draw.normal(0, 0.02, 5) + draw.normal(0, 0.01, (4, 5))
        said += bool(outliers(finished(rows(table))))
    assert stats.binomtest(said, 200, 0.01, alternative="greater").pvalue > 0.01


def test_a_study_of_two_arms_or_two_seeds_has_nothing_to_compare_with() -> None:
    assert outliers(finished(rows(np.array([[4.6, 4.61, 4.59], [4.6, 4.59, 5.39]])))) == {}
    assert outliers(finished(rows(np.array([[4.6, 4.61], [4.6, 5.39], [4.6, 4.6]])))) == {}
    far = outliers(finished(rows(np.array([[4.6, 4.61, 4.59], [4.58, 4.6, 4.575], [4.6, 4.59, 5.39]]))))
    assert far == {"arm2": Outlier(2, pytest.approx(0.8, abs=0.02))}
