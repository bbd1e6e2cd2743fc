"""The schedule of looks: what it promises, and what its docstring claims of it, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reports.judge.verdicts import looks


@pytest.mark.parametrize(
    ("start", "cap", "seeds"),
    [
        (3, 18, [3, 5, 8, 12, 18]),
        (3, 20, [3, 5, 8, 12, 20]),
        (2, 40, [2, 3, 5, 8, 12, 18, 27, 40]),
        (3, 3, [3]),
        (5, 6, [6]),
    ],
)
def test_looks_grow_by_half_and_end_at_the_cap(start: int, cap: int, seeds: list[int]) -> None:
    assert [look.seeds for look in looks(start, cap)] == seeds
    assert sum(look.alpha for look in looks(start, cap)) == pytest.approx(0.05)


@pytest.mark.parametrize(("start", "cap"), [(1, 5), (0, 0), (6, 5)])
def test_impossible_schedules_are_refused(start: int, cap: int) -> None:
    with pytest.raises(ValueError, match="2 ≤ first look ≤ cap"):
        looks(start, cap)


def found(differences: np.ndarray) -> tuple[float, float]:
    """Share of studies (rows) that find something, and the seeds that they take on average."""
    open_, seeds = np.ones(len(differences), dtype=bool), np.zeros(len(differences))
    for look in looks(3, 18):
        seeds[open_] = look.seeds
        open_ &= stats.ttest_1samp(differences[:, : look.seeds], 0, axis=1).pvalue >= look.alpha
    return 1 - open_.mean(), seeds.mean()


def test_the_error_rate_is_kept_and_the_power_is_as_documented() -> None:
    draw = np.random.default_rng(1)
    wrong, _ = found(draw.normal(0, 1, (20_000, 18)))
    assert 0.02 < wrong <= 0.05
    power, seeds = found(draw.normal(1, 1, (20_000, 18)))
    assert power == pytest.approx(0.91, abs=0.01)
    assert seeds == pytest.approx(12, abs=0.3)
    fixed = stats.ttest_1samp(draw.normal(1, 1, (20_000, 18)), 0, axis=1).pvalue < 0.05
    assert fixed.mean() == pytest.approx(0.98, abs=0.01)
