"""Schedules against closed forms worked out here, by hand, at chosen points."""

import itertools
import math

import pytest

from ablate.training.schedule import learning_rate, warmup_steps
from ablate.training.spec import TrainSpec

PEAK = 2.0


def rates(steps: int, **settings: object) -> list[float]:
    spec = TrainSpec.model_validate({"lr": PEAK, **settings})
    return [learning_rate(step, steps, spec) for step in range(1, steps + 1)]


def test_warmup_rises_linearly_from_zero_to_the_peak():
    found = rates(100, warmup=0.04, schedule="constant")
    assert found[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert set(found[4:]) == {PEAK}


def test_no_warmup_begins_at_the_peak():
    for schedule in ("constant", "cosine", "linear", "wsd"):
        assert rates(50, warmup=0.0, schedule=schedule)[0] == PEAK


def test_cosine_at_its_quarters():
    # 8 steps after 0 of warm-up: shares 0, 1/8, … 7/8 of a half turn, between 2.0 and 0.2.
    found = rates(8, warmup=0.0, schedule="cosine", final_lr=0.1)
    assert found[4] == pytest.approx(1.1)  # half way: the mean of peak and end
    assert found[2] == pytest.approx(1.1 + 0.9 * math.sqrt(0.5))
    assert found[6] == pytest.approx(1.1 - 0.9 * math.sqrt(0.5))


def test_linear_loses_the_same_at_every_step():
    # 16 steps of which 4 warm up: 12 equal drops from 2.0 lead to 0.5 at the step after the last.
    found = rates(16, warmup=0.25, schedule="linear", final_lr=0.25)
    assert found[4] == PEAK
    assert [a - b for a, b in itertools.pairwise(found[4:])] == pytest.approx([0.125] * 11)
    assert found[-1] - 0.125 == pytest.approx(0.5)


def test_wsd_is_stable_then_decays():
    # 20 steps: 2 warm up, 14 at the peak, 4 decay by (2.0 − 0.4) / 4 each.
    found = rates(20, warmup=0.1, schedule="wsd", decay=0.2, final_lr=0.2)
    assert found[2:17] == [PEAK] * 15
    assert found[17:] == pytest.approx([1.6, 1.2, 0.8])


def test_wsd_whose_decay_is_longer_than_what_warmup_leaves():
    found = rates(10, warmup=0.5, schedule="wsd", decay=1.0, final_lr=0.0)
    assert found[5:] == pytest.approx([2.0, 1.6, 1.2, 0.8, 0.4])


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "wsd"])
@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("warmup", [0.0, 0.5, 1.0])
def test_every_step_of_any_run_has_a_positive_rate_up_to_the_peak(schedule, steps, warmup):
    found = rates(steps, warmup=warmup, schedule=schedule, decay=0.5)
    assert all(0 < rate <= PEAK for rate in found)


def test_warmup_is_a_share_of_the_steps():
    assert warmup_steps(400, TrainSpec(warmup=0.05)) == 20
