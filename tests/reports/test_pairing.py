"""Arms that share few or all seeds: means over all runs are compared, and errors are as rare as promised."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
import pytest
from scipy import stats

import ablate
from ablate.wings.compare.losses import ArmLosses, judge, noise_of
from tests.many import few
from tests.moderated import moderated
from tests.regression import holm

BASE, OTHER = [3.100, 3.112, 3.105, 3.095, 3.108], [3.121, 3.134, 3.119, 3.128, 3.115]


def table(**arms: Mapping[int, float]) -> pl.DataFrame:
    rows = [(arm, seed, loss) for arm, losses in arms.items() for seed, loss in losses.items()]
    return pl.DataFrame(rows, schema=["arm", "seed", "loss"], orient="row")


def shifted(losses: Iterable[float], first: int) -> dict[int, float]:
    return dict(enumerate(losses, first))


@pytest.mark.parametrize("first", range(6))
def test_no_run_is_dropped_whatever_seeds_are_in_common(first: int) -> None:
    losses = {"a": shifted(BASE, 0), "b": shifted(OTHER, first)}
    found = ablate.compare(table(**losses)).contrasts.row(0, named=True)
    test, common = moderated(losses, "b", "a"), 5 - first
    assert found["difference"] == pytest.approx(np.mean(OTHER) - np.mean(BASE))
    assert found["p"] == pytest.approx(test.p)
    assert (found["low"], found["high"]) == pytest.approx(test.interval(0.05))
    assert (found["verdict"], found["paired"]) == ("worse", common)
    assert found["reason"] == (f"5 and 5 seeds, {common or 'none'} in common" if first else "5 paired seeds")


@pytest.mark.parametrize("seeds", [5, 10])
def test_seeds_that_explain_nearly_all_leave_about_the_interval_of_a_paired_t_test(seeds: int) -> None:
    draw, ratios = np.random.default_rng(3), []
    for _ in range(20):
        a = 3 + draw.normal(0, 0.5, seeds)
        b = a + 0.01 + draw.normal(0, 0.005, seeds)
        found = ablate.compare(table(a=shifted(a, 0), b=shifted(b, 0))).contrasts.row(0, named=True)
        ends = stats.ttest_rel(b, a).confidence_interval(0.95)
        ratios.append((found["high"] - found["low"]) / (ends.high - ends.low))
    assert min(ratios) > 0.95 and np.mean(ratios) < 1.25 and max(ratios) < 1.5


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_differences_that_scatter_as_much_as_unrelated_runs_do_count_for_nothing(seeds: int) -> None:
    """Arms that move against each other: whether seeds have the same names makes no difference."""
    a = np.linspace(3.0, 3.1, seeds)
    b = 3.2 - 0.5 * (a - 3.0)
    paired, apart = (
        ablate.compare(table(a=shifted(a, 0), b=shifted(b, first))).contrasts.row(0, named=True) for first in (0, 100)
    )
    assert [paired[name] for name in ("p", "low", "high")] == pytest.approx(
        [apart[name] for name in ("p", "low", "high")]
    )


def test_runs_without_a_pair_and_beside_a_failed_one_count() -> None:
    losses = {"a": shifted(BASE, 0), "b": shifted(OTHER, 1) | {2: np.inf}, "c": shifted(OTHER, 0)}
    found = ablate.compare(table(**losses)).contrasts.row(0, named=True)
    trained = np.delete(OTHER, 1)
    assert found["difference"] == pytest.approx(trained.mean() - np.mean(BASE))
    assert found["paired"] == 3
    assert found["reason"].startswith("5 and 5 seeds, 4 in common; 1 of 5 runs of b failed")
    tests = [moderated(losses, name, "a") for name in ("b", "c")]
    assert (found["p"], found["low"]) == pytest.approx(
        (holm([each.p for each in tests])[0], tests[0].interval(0.025)[0])
    )
    assert found["high"] == np.inf


def test_failures_do_not_unpair_arms() -> None:
    """Which test is used depends on the seeds that were run, and on no loss."""
    failed = shifted(OTHER, 0) | dict.fromkeys((0, 1, 2), float("inf"))
    contrast = ablate.compare(table(a=shifted(BASE, 0), b=failed)).contrasts.row(0, named=True)
    assert contrast["paired"] == 2


DESIGNS = {
    "two of five in common": ({"a": range(5), "b": range(3, 8)}, ("b", "a")),
    "a baseline of twenty": ({"a": range(20), "b": range(5)}, ("b", "a")),
    "four of five in common": ({"a": range(5), "b": range(1, 6)}, ("b", "a")),
    "a third arm has the seeds of both": ({"a": range(10), "b": range(5), "c": range(5, 10)}, ("c", "b")),
}


@pytest.mark.parametrize("of_seed", [0.0, 0.9], ids=["no seed effect", "nine tenths of the variance are the seed's"])
@pytest.mark.parametrize("name", few(DESIGNS, 2))
def test_arms_that_differ_in_nothing_are_seldom_told_apart(name: str, of_seed: float) -> None:
    """At most 5 % of tables, whatever seeds arms share. Of 800, 60 or more have a probability of 0.1 % at 5 %."""
    design, pair = DESIGNS[name]
    draw, studies = np.random.default_rng(1), 800
    found = 0
    for _ in range(studies):
        effects = draw.normal(0, np.sqrt(of_seed), 20)
        arms = [
            ArmLosses(arm, {seed: effects[seed] + draw.normal(0, np.sqrt(1 - of_seed)) for seed in seeds}, {})
            for arm, seeds in design.items()
        ]
        (contrast,) = judge(arms, [pair], noise_of(arms))
        found += contrast.p is not None and contrast.p < 0.05
    assert found < 60


def test_an_odd_run_counts_in_a_mean_that_is_not_paired() -> None:
    draw = np.random.default_rng(1)
    a, b = (4 + draw.normal(0, 0.004, 8) for _ in range(2))
    b[2] += 0.3
    found = ablate.compare(table(a=shifted(a, 0), b=shifted(b, 100))).contrasts.row(0, named=True)
    without = np.delete(b, 2).mean() - a.mean()
    said = f"seed 102 of b ended 0.3 above the others: without it the difference is {without:+.2g}"
    assert said in found["reason"]
    assert found["difference"] == pytest.approx(b.mean() - a.mean())
    assert found["verdict"] == "inconclusive"


def test_time_grows_with_the_number_of_runs() -> None:
    """Twenty arms of a thousand seeds took three seconds when each run looked through all others; now a tenth."""
    draw = np.random.default_rng(0)
    losses = table(**{f"arm{arm}": shifted(draw.normal(3, 0.01, 1000), 0) for arm in range(20)})
    start = time.process_time()
    ablate.compare(losses)
    assert time.process_time() - start < 1.5
