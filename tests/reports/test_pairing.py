"""Arms that share few or all seeds: which runs are compared, and that errors are as rare as promised."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
import pytest
from scipy import stats

import ablate
from reports.findings.losses import ArmLosses, judge, noise_of

BASE, OTHER = [3.100, 3.112, 3.105, 3.095, 3.108], [3.121, 3.134, 3.119, 3.128, 3.115]


def table(**arms: Mapping[int, float]) -> pl.DataFrame:
    rows = [(arm, seed, loss) for arm, losses in arms.items() for seed, loss in losses.items()]
    return pl.DataFrame(rows, schema=["arm", "seed", "loss"], orient="row")


def shifted(losses: Iterable[float], first: int) -> dict[int, float]:
    return dict(enumerate(losses, first))


@pytest.mark.parametrize("first", [2, 3, 4, 5])
def test_few_seeds_in_common_are_not_paired_and_no_run_is_dropped(first: int) -> None:
    found = ablate.compare(table(a=shifted(BASE, 0), b=shifted(OTHER, first)))
    contrast = found.contrasts.row(0, named=True)
    test = stats.ttest_ind(OTHER, BASE)
    interval = test.confidence_interval(0.95)
    assert contrast["p"] == pytest.approx(test.pvalue)
    assert (contrast["low"], contrast["high"]) == pytest.approx((interval.low, interval.high))
    assert (contrast["verdict"], contrast["paired"], found.unused.height) == ("worse", 0, 0)
    both = 5 - first
    assert contrast["reason"] == "5 and 5 seeds, unpaired" + (
        f": the {both} in common are too few to pair" if both else ""
    )


def test_runs_without_a_pair_are_named_with_a_remedy() -> None:
    base, other = shifted(BASE, 0), shifted(OTHER, 1) | {2: float("nan")}
    found = ablate.compare(table(a=base, b=other, c=shifted(OTHER, 0)))
    contrast = found.contrasts.row(0, named=True)
    assert contrast["paired"] == 3
    assert "not used: seed 5 of b (no finished run of a); not used: seeds 0, 2 of a" in contrast["reason"]
    assert found.unused.rows() == [
        ("b", "a", "b", 5, "missing"),
        ("b", "a", "a", 0, "missing"),
        ("b", "a", "a", 2, "failed"),
    ]
    assert found.document()["unused"][0] == {"arm": "b", "against": "a", "run": "b", "seed": 5, "why": "missing"}  # type: ignore[index,call-overload]
    assert any("to use other seeds, train them in both" in note for note in found.notes)
    whole = ablate.compare(table(a=base, b=shifted(OTHER, 0)))
    assert whole.unused.is_empty() and not any("train them in both" in note for note in whole.notes)


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
@pytest.mark.parametrize("name", DESIGNS)
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


def test_an_odd_run_is_left_out_of_a_mean_that_is_not_paired() -> None:
    """As its reason says."""
    draw = np.random.default_rng(1)
    a, b = (4 + draw.normal(0, 0.004, 8) for _ in range(2))
    b[2] += 0.3
    found = ablate.compare(table(a=shifted(a, 0), b=shifted(b, 100)))
    contrast = found.contrasts.row(0, named=True)
    assert "seed 102 of b ended 0.3 above the value expected for its arm and is left out" in contrast["reason"]
    assert contrast["difference"] == pytest.approx(np.delete(b, 2).mean() - a.mean())
    assert found.unused.rows() == [("b", "a", "b", 102, "odd")]


def test_time_grows_with_the_number_of_runs() -> None:
    """Twenty arms of a thousand seeds took three seconds when each run looked through all others; now a tenth."""
    draw = np.random.default_rng(0)
    losses = table(**{f"arm{arm}": shifted(draw.normal(3, 0.01, 1000), 0) for arm in range(20)})
    start = time.process_time()
    ablate.compare(losses)
    assert time.process_time() - start < 1.5
