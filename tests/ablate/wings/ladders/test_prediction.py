"""Rank agreement against scipy and plain counting; coverage by simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from ablate.wings.ladders.order_accuracy import prediction


def sizes(
    draw: np.random.Generator, arms: int, misfit: float, noise: float, seeds: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Losses at two sizes. Arms scatter by 1; the sizes disagree by `misfit`; seeds shift all arms alike."""
    large = draw.normal(0, 1, (arms, 1))
    small = large + draw.normal(0, misfit, (arms, 1))
    noisy = [values + draw.normal(0, 1, seeds) + draw.normal(0, noise, (arms, seeds)) for values in (small, large)]
    return noisy[0], noisy[1]


def test_values_are_scipy_s_and_those_of_plain_counting() -> None:
    small, large = sizes(np.random.default_rng(0), 9, 0.7, 0.3)
    found = prediction(small, large)
    means = small.mean(axis=1), large.mean(axis=1)
    right = [(means[0][i] < means[0][j]) == (means[1][i] < means[1][j]) for i, j in combinations(range(9), 2)]
    assert found.accuracy.value == pytest.approx(np.mean(right))
    assert found.kendall.value == pytest.approx(stats.kendalltau(*means).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(*means).statistic)
    for interval in (found.accuracy, found.kendall, found.spearman):
        assert interval.low < interval.value < interval.high


def test_perfect_agreement_far_beyond_noise_is_sure() -> None:
    losses = np.arange(6.0)[:, None] + np.array([0.0, 0.01])
    found = prediction(losses, 2 * losses)
    assert (found.accuracy.low, found.accuracy.value, found.kendall.value) == (1.0, 1.0, 1.0)
    assert prediction(losses, -losses).accuracy.value == 0


def test_ties_are_half_right() -> None:
    assert prediction([[1.0], [1.0], [1.0], [1.0]], [[1.0], [2.0], [3.0], [4.0]]).accuracy.value == 0.5


def test_too_few_arms_are_refused() -> None:
    with pytest.raises(ValueError, match="4 arms or more"):
        prediction(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="not 5 and 4"):
        prediction(np.zeros((5, 2)), np.zeros((4, 2)))


def coverage(arms: int, misfit: float, noise: float, studies: int) -> tuple[float, float]:
    """Rate at which the interval of the accuracy contains that of two random arms, estimated from many pairs; and the
    interval's mean width."""
    draw = np.random.default_rng(1)
    pairs = [sizes(draw, 2, misfit, noise) for _ in range(20_000)]
    means = [[size.mean(axis=1) for size in pair] for pair in pairs]
    truth = float(np.mean([(small[0] < small[1]) == (large[0] < large[1]) for small, large in means]))
    found = [prediction(*sizes(draw, arms, misfit, noise)).accuracy for _ in range(studies)]
    held = np.mean([each.low <= truth <= each.high for each in found])
    return float(held), float(np.mean([each.high - each.low for each in found]))


@pytest.mark.slow
@pytest.mark.parametrize("arms", [8, 16])
@pytest.mark.parametrize(("misfit", "noise"), [(0.1, 0.1), (0.5, 0.2), (1.5, 0.5), (5.0, 1.0)])
def test_coverage(arms: int, misfit: float, noise: float) -> None:
    held, width = coverage(arms, misfit, noise, 400)
    print(f"{arms} arms, misfit {misfit}, noise {noise}: coverage {held:.3f}, width {width:.2f}")
    assert held >= 0.95 - 3 * (0.05 * 0.95 / 400) ** 0.5


def test_intervals_hold_the_accuracy_of_other_arms() -> None:
    """40 small studies: a binomial test at 0.1 %."""
    draw = np.random.default_rng(2)
    large = draw.normal(0, 1, 4_000)
    small = large + draw.normal(0, 1, 4_000)
    truth = float(np.mean((small[::2] < small[1::2]) == (large[::2] < large[1::2])))
    blocks = (slice(start, start + 8) for start in range(0, 320, 8))
    found = [prediction(small[block, None], large[block, None]).accuracy for block in blocks]
    held = sum(each.low <= truth <= each.high for each in found)
    assert stats.binomtest(held, len(found), 0.95, alternative="less").pvalue > 0.001
