"""Costs judged together, against scipy's t-tests and Holm's rule written out, and how often identical arms differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from reports.judge.statistics.estimates import judge

MEASURED = Path(__file__).with_name("identical_arms.json")
"""ln ratios of four arms to a fifth that computes the same, by kind of work, process and arm (docs/benchmarks)."""
ARMS, COSTS = 4, ("training", "decoding", "memory")
STUDIES = 2000


def rejected(p_values: list[float], alpha: float = 0.05) -> list[bool]:
    """Holm 1979: the smallest p against α / m, the next against α / (m − 1), until one fails."""
    found = [False] * len(p_values)
    for place, index in enumerate(np.argsort(p_values)):
        if p_values[index] >= alpha / (len(p_values) - place):
            break
        found[index] = True
    return found


@pytest.mark.parametrize("seed", range(20))
def test_intervals_are_those_of_t_tests_and_exclude_one_where_holm_rejects(seed: int) -> None:
    draw = np.random.default_rng(seed)
    logs = {place: (draw.choice([0, 0.03, 0.1]) + 0.02 * draw.standard_normal(5)).tolist() for place in range(8)}
    found = judge(logs)
    p_values = [float(stats.ttest_1samp(values, 0).pvalue) for values in logs.values()]
    assert [found[place].excludes(1) for place in logs] == rejected(p_values)
    failed = sorted(p_values)[sum(rejected(p_values)) :]
    for (place, values), p in zip(logs.items(), p_values, strict=True):
        rank = sum(other < min(p, failed[0] if failed else p) for other in p_values)
        ends = stats.t.interval(1 - 0.05 / (8 - rank), 4, np.mean(values), stats.sem(values))
        assert (found[place].low, found[place].high) == pytest.approx(tuple(np.exp(ends)))
        assert found[place].mean == pytest.approx(np.exp(np.mean(values)))


def test_what_repeats_exactly_is_exact() -> None:
    same, half = judge({"same": (0.0, 0.0, 0.0), "half": (np.log(0.5),) * 3}).values()
    assert (same.low, same.mean, same.high) == (1, 1, 1)
    assert half.excludes(1)
    with pytest.raises(ValueError, match="single process"):
        judge({"once": (0.1,)})


Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
NOISE: dict[str, Draw] = {
    "normal": lambda draw, n: draw.standard_normal(n),
    "heavy": lambda draw, n: draw.standard_t(2, n),
    "a slow process in ten": lambda draw, n: draw.standard_normal(n) * np.where(draw.random(n) < 0.1, 10, 1),
    "unlike arms": lambda draw, n: draw.standard_normal(n) * np.geomspace(0.2, 5, n),
}


@pytest.mark.parametrize(
    ("processes", "studies"),
    [(3, 250), pytest.param(3, STUDIES, marks=pytest.mark.slow), pytest.param(5, STUDIES, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("noise", NOISE)
def test_few_studies_call_an_identical_arm_different(noise: str, processes: int, studies: int) -> None:
    """All arms against one, in each process: what the baseline had is in every ratio."""
    draw, wrong = np.random.default_rng(0), 0
    for _ in range(studies):
        times = {cost: np.array([NOISE[noise](draw, ARMS + 1) for _ in range(processes)]) for cost in COSTS}
        logs = {(arm, cost): (of[:, arm] - of[:, ARMS]).tolist() for cost, of in times.items() for arm in range(ARMS)}
        wrong += any(ratio.excludes(1) for ratio in judge(logs).values())
    assert wrong <= stats.binom.ppf(0.999, studies, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [3, 5])
def test_few_studies_do_so_with_what_real_processes_measured(processes: int) -> None:
    """Processes in which five arms that compute the same took turns, on a machine that others used too."""
    measured = {work: np.array(values) for work, values in json.loads(MEASURED.read_text()).items()}
    draw, wrong = np.random.default_rng(0), 0
    (count,) = {len(values) for values in measured.values()}
    for _ in range(STUDIES):
        chosen = draw.choice(count, processes, replace=False)
        logs = {(work, arm): values[chosen, arm].tolist() for work, values in measured.items() for arm in range(ARMS)}
        wrong += any(ratio.excludes(1) for ratio in judge(logs).values())
    assert wrong <= stats.binom.ppf(0.999, STUDIES, 0.05)
