"""Curves of many runs at once against the mean of each step, and against the way of runs that logged other steps."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reports.judge.reading.collect import collect
from reports.judge.reading.collected import Collected, CurvePoint, average, lines_of, mean_curve
from reports.page.sections._runs import clocks
from tests.reports.factory import Arm, StudyOf

ARMS = ("a", "b")


@pytest.fixture
def data(tmp_path: Path) -> Collected:
    return collect(StudyOf([Arm("a", [2.4, 2.5, 2.6]), Arm("b", [2.3, None, 2.1])]).write(tmp_path))


def near(found: tuple[CurvePoint, ...], expected: list[tuple[float, ...]]) -> bool:
    return len(found) == len(expected) > 0 and np.allclose([astuple(point) for point in found], expected, rtol=1e-12)


@pytest.mark.parametrize("column", ["loss", "validation_loss"])
def test_a_curve_is_the_mean_over_runs_of_each_step(column: str, data: Collected) -> None:
    value = pl.col(column)
    for arm in ARMS:
        steps = data.curves.filter(arm=arm).drop_nulls(column).group_by("step")
        expected = steps.agg(value.mean(), low=value.min(), high=value.max(), seeds=pl.len()).sort("step").rows()
        assert data.logs[arm].steps is not None
        assert near(mean_curve(data, arm, column), expected)


def test_runs_that_logged_other_steps_take_the_slow_way_to_the_same_curve(data: Collected) -> None:
    """One run lacks a line that no curve has."""
    first = data.curves["digest"][0]
    odd = replace(data, curves=data.curves.filter(~((pl.col("digest") == first) & (pl.col("step") == 0))))
    assert odd.logs["a"].steps is None
    for bins in (None, 7):
        slow = [astuple(point) for point in mean_curve(odd, "a", "loss", bins)]
        assert near(mean_curve(data, "a", "loss", bins), slow)
        assert slow == [astuple(point) for point in average([line for _, line in lines_of(odd, "a", "loss", bins)])]


def test_the_logs_of_runs_are_theirs_in_whatever_order_lines_stand(data: Collected) -> None:
    mixed = replace(data, curves=data.curves.sort("step", maintain_order=True))
    for arm in ARMS:
        for digest in data.logs[arm].digests:
            found, expected = mixed.logs[arm].of(digest), data.curves.filter(arm=arm, digest=digest)
            assert found is not None
            for name, values in found.items():
                assert np.array_equal(values, expected[name].to_numpy().astype(float), equal_nan=True)
    assert data.logs["a"].of("no such run") is None


def test_a_clock_is_the_mean_over_runs(data: Collected) -> None:
    for clock, arm in zip(clocks(data), ARMS, strict=True):
        for unit in ("tokens", "seconds"):
            logs = data.curves.filter(arm=arm).partition_by("digest")
            expected = np.mean([np.interp(clock.steps, log["step"], log[unit]) for log in logs], axis=0)
            assert np.allclose(clock.read(unit, clock.steps), expected, rtol=1e-12)
