"""Schedules against closed forms worked out here, by hand, at chosen points."""

import itertools
import math

import pytest
import torch
from pydantic import ValidationError
from torch.optim import lr_scheduler

from ablate.training.optim import learning_rate
from ablate.training.spec import TrainSpec

PEAK = 2.0


def rates(steps: int, **settings: object) -> list[float]:
    spec = TrainSpec.model_validate({"lr": PEAK, **settings})
    return [learning_rate(step, steps, spec) for step in range(1, steps + 1)]


def test_warmup_rises_linearly_from_zero_to_the_peak():
    found = rates(100, warmup=0.04, schedule="constant")
    assert found[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert set(found[4:]) == {PEAK}


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "wsd"])
def test_warmup_in_steps_is_the_same_for_every_length(schedule):
    for steps in (10, 100):
        found = rates(steps, warmup="4 steps", schedule=schedule)
        assert found[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
        assert found == rates(steps, warmup=4 / steps, schedule=schedule)
    assert rates(3, warmup="4 steps", schedule=schedule) == rates(3, warmup=1.0, schedule=schedule)


@pytest.mark.parametrize("given", ["4", "0 steps", "-1 steps", "1.5 steps", "4 tokens", 1.5, -0.1, True, None])
def test_warmup_is_a_share_or_a_number_of_steps(given):
    with pytest.raises(ValidationError, match="a share between 0 and 1, or a number of steps such as `100 steps`"):
        TrainSpec(warmup=given)


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
    assert TrainSpec(warmup=0.05).warmup_steps(400) == 20


def torch_rates(after_warmup: type, steps: int, warmup: int, **settings: object) -> list[float]:
    """torch's schedulers in a row: a linear rise from peak / (w + 1), then one of them."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    after = after_warmup(optimizer, **settings)
    schedule = after
    if warmup:
        rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
        schedule = lr_scheduler.SequentialLR(optimizer, [rise, after], milestones=[warmup])
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_shapes_are_torch_s(share, final):
    steps, warmup = 40, round(40 * share)
    rest = steps - warmup
    cosine = torch_rates(lr_scheduler.CosineAnnealingLR, steps, warmup, T_max=rest, eta_min=PEAK * final)
    linear = torch_rates(lr_scheduler.LinearLR, steps, warmup, start_factor=1.0, end_factor=final, total_iters=rest)
    constant = torch_rates(lr_scheduler.ConstantLR, steps, warmup, factor=1.0)
    for schedule, expected in (("cosine", cosine), ("linear", linear), ("constant", constant)):
        assert rates(steps, warmup=share, schedule=schedule, final_lr=final) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "wsd"])
def test_warmup_all_the_way_rises_to_just_below_the_peak(schedule):
    found = rates(9, warmup=1.0, schedule=schedule)
    assert found == pytest.approx([PEAK * step / 10 for step in range(1, 10)])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_rates_never_rise_after_warmup_and_stop_one_step_before_the_end_rate(schedule):
    found = rates(30, warmup=0.1, schedule=schedule, final_lr=0.25, decay=0.5)[3:]
    assert found[0] == PEAK
    assert all(a >= b for a, b in itertools.pairwise(found))
    assert 0.25 * PEAK < found[-1] < 0.35 * PEAK


def test_wsd_without_decay_is_constant():
    assert set(rates(10, warmup=0.0, schedule="wsd", decay=0.0)) == {PEAK}
