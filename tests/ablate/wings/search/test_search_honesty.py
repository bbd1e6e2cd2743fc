"""Searches whose answer is known: samplers beat random at equal trials."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from ablate.study.study import Study
from tests.ablate.known import Known, bowl, search, spec_of, study_of, trade

LEVEL = 0.01
"""Level of the rank test that a sampler's searches end better than random ones."""
RANDOM_SEEDS = range(100, 120)
GP = ("gp", 20, 5)
OTHERS = (("cmaes", 100, 6), ("nsga2", 100, 10), ("nsga3", 100, 10), GP)
SAMPLERS = (("tpe", 60, 6), *(pytest.param(*sampler, marks=pytest.mark.slow) for sampler in OTHERS))
"""Trials of a search, and how many searches. Generations take trials to get going."""
OF_FRONTS = (("tpe", 60, 6), ("nsga2", 200, 10), ("nsga3", 200, 10), GP)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("known"))


def lowest(study: Study, sampler: str, trials: int, seeds: Sequence[int]) -> list[float]:
    """The best value of each search. The bowl's lowest is zero."""
    spec = spec_of(study, sampler=sampler, trials=trials)
    found = [search(Known(study, bowl), spec, study.folder, seed)[0] for seed in seeds]
    assert all(len(each.trials) == trials for each in found)
    return [each.best_value for each in found]


@pytest.fixture(scope="module")
def at_random(study: Study) -> Callable[[int], list[float]]:
    """The best values of random searches with so many trials."""
    return cache(lambda trials: lowest(study, "random", trials, RANDOM_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "trials", "searches"), SAMPLERS)
def test_every_sampler_beats_random_at_equal_trials(
    sampler: str, trials: int, searches: int, study: Study, at_random: Callable[[int], list[float]]
) -> None:
    ours, theirs = lowest(study, sampler, trials, range(searches)), at_random(trials)
    assert statistics.median(ours) < statistics.median(theirs)
    assert mannwhitneyu(ours, theirs, alternative="less").pvalue < LEVEL


def dominated(study: Study, sampler: str, trials: int, seeds: Sequence[int]) -> list[float]:
    """The area that each search's front dominates, below (1, 1)."""
    spec = spec_of(study, sampler=sampler, trials=trials, objectives=["loss", "parameters"])
    return [_area([t.values for t in search(Known(study, trade), spec, study.folder, s)[0].trials]) for s in seeds]


def _area(values: Sequence[Sequence[float]]) -> float:
    """Under a staircase."""
    total, lowest_yet = 0.0, 1.0
    for first, second in sorted(values):
        if first < 1 and second < lowest_yet:
            total += (1 - first) * (lowest_yet - second)
            lowest_yet = second
    return total


def test_the_area_is_that_of_a_count_of_cells() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(0, 1.2, (12, 2))
    cells = (np.arange(400) + 0.5) / 400
    covered = ((values[:, 0, None, None] <= cells[:, None]) & (values[:, 1, None, None] <= cells)).any(axis=0)
    assert _area(values.tolist()) == pytest.approx(covered.mean(), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "trials", "searches"), OF_FRONTS)
def test_every_sampler_of_fronts_beats_random_at_equal_trials(
    sampler: str, trials: int, searches: int, study: Study
) -> None:
    ours = dominated(study, sampler, trials, range(searches))
    theirs = dominated(study, "random", trials, RANDOM_SEEDS)
    assert statistics.median(ours) > statistics.median(theirs)
    assert mannwhitneyu(ours, theirs, alternative="greater").pvalue < LEVEL
