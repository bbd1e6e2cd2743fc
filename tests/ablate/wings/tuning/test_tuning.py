"""Choice of the next settings to try: every setting of a grid, outwards from its edges, and what optuna proposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.study.tune_spec import TuneSpec
from ablate.wings.tuning.trials import IllegalSpaceError, Settings, Tuned
from ablate.wings.tuning.tuning import propose
from store.documents.tuning import RATE

Loss = Callable[[Settings], float]


def tune(
    space: dict[str, Any], loss: Loss, legal: Callable[[Settings], bool] = lambda _: True, seeds: int = 1, **given: Any
) -> Tuned:
    """Go through a whole tuning with a loss that is known, the same with every seed."""
    return tune_by_seed(space, lambda settings: [loss(settings)] * seeds, legal, **given)


def tune_by_seed(
    space: dict[str, Any],
    losses: Callable[[Settings], Sequence[float]],
    legal: Callable[[Settings], bool] = lambda _: True,
    **given: Any,
) -> Tuned:
    spec = TuneSpec.model_validate({"space": space, **given})
    batches = propose(spec, spec.space_around(1e-2), legal)
    batch = next(batches)
    while True:
        assert all(legal(settings) for settings in batch)
        try:
            batch = batches.send([losses(settings) for settings in batch])
        except StopIteration as end:
            assert isinstance(end.value, Tuned)
            return end.value


def bowl(best: float) -> Loss:
    """Lowest at lr = best on a logarithmic scale."""
    return lambda settings: math.log(settings["train.lr"] / best) ** 2


def test_a_grid_tries_every_combination_and_keeps_the_lowest() -> None:
    space = {"train.lr": [1e-3, 3e-3, 9e-3], "train.warmup": [0.0, 0.1]}
    found = tune(space, lambda s: abs(s["train.lr"] - 3e-3) + s["train.warmup"], extend=0)
    assert [tuple(trial.settings.values()) for trial in found.trials] == list(product(*space.values()))
    assert found.chosen == {"train.lr": 3e-3, "train.warmup": 0.0}


def test_a_rate_tuned_alone_is_sought_between_the_best_and_its_neighbours() -> None:
    for rates in ([1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2], [1e-3, 3e-3, 9e-3]):
        found = tune({RATE: rates}, bowl(2.3e-3), seeds=2)
        added = [trial.settings[RATE] for trial in found.trials[len(rates) :]]
        assert 1 <= len(added) <= TuneSpec().refine
        assert all(1e-3 < rate < 4e-3 for rate in added)
        assert found.chosen == min(found.trials, key=lambda trial: trial.loss).settings
        assert found.chosen[RATE] == pytest.approx(2.3e-3, rel=0.1)
        assert (found.chosen[RATE] in found.curve, found.reason) == (True, None)
    both = tune({RATE: [1e-3, 2e-3, 4e-3, 8e-3], "train.warmup": [0.1]}, bowl(2.95e-3), seeds=2)
    assert (both.chosen[RATE], both.curve, both.reason) == (4e-3, (), None)
    none = tune({RATE: [1e-3, 2e-3, 4e-3]}, bowl(2.3e-3), seeds=2, refine=0)
    assert (len(none.trials), none.chosen) == (3, {RATE: 2e-3})


def test_where_no_curve_can_be_drawn_the_best_rate_tried_is_taken_and_the_reason_is_given() -> None:
    low = tune({RATE: [1e-3, 2e-3]}, lambda s: s[RATE], seeds=2, extend=1)
    assert (low.chosen, low.curve) == ({RATE: 5e-4}, ())
    assert low.reason == "not bracketed: the lowest rate tried, 0.0005, is the best"
    one = tune({RATE: [1e-3, 2e-3, 4e-3]}, bowl(2e-3))
    assert (one.chosen, one.reason) == ({RATE: 2e-3}, "one tuning seed cannot show the noise")


def test_rates_between_the_best_and_one_that_fails_are_tried() -> None:
    """The loss falls until training breaks at 3.5e-3: whoever stopped at 2e-3 would lose what lies between."""
    found = tune(
        {RATE: [5e-4, 1e-3, 2e-3, 4e-3]}, lambda s: 2 - 100 * s[RATE] if s[RATE] < 3.5e-3 else math.inf, seeds=2
    )
    tried = [trial.settings[RATE] for trial in found.trials[4:]]
    assert tried and all(2e-3 < rate < 4e-3 for rate in tried)
    assert found.chosen[RATE] == max(rate for rate in tried if rate < 3.5e-3)
    assert found.reason is None


def test_rates_at_which_a_seed_stalls_are_not_taken_nor_in_the_curve() -> None:
    """Two of two seeds train up to 8e-3, one of two at 1.6e-2, where the one is ahead, and none at 3.2e-2."""
    rates = [2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2]
    trained = {rate: math.log(rate / 4.5e-3) ** 2 for rate in rates}
    losses = [[trained[rate], trained[rate]] for rate in rates[:3]] + [[-0.1, 6.0], [6.0, 6.0]]
    spec = TuneSpec.model_validate({"space": {RATE: rates}})
    batches = propose(spec, spec.space_around(1e-2), lambda _: True, lambda loss: loss > 5)
    next(batches)
    batch, found = batches.send(losses), None
    while found is None:
        try:
            batch = batches.send([[math.log(each[RATE] / 4.5e-3) ** 2] * 2 for each in batch])
        except StopIteration as end:
            found = end.value
    assert ([trial.stalled for trial in found.trials[:5]], found.edges) == ([0, 0, 0, 1, 2], ())
    assert found.chosen[RATE] == pytest.approx(4.5e-3, rel=0.15)
    assert set(found.curve) >= {2e-3, 4e-3} and max(found.curve) <= 8e-3
    assert not found.fails_above


def test_an_arm_that_stalls_at_every_rate_takes_its_lowest_mean_loss() -> None:
    spec = TuneSpec.model_validate({"space": {RATE: [1e-3, 2e-3, 4e-3]}, "extend": 0})
    batches = propose(spec, spec.space_around(1e-2), lambda _: True, lambda loss: loss > 5)
    next(batches)
    with pytest.raises(StopIteration) as end:
        batches.send([[5.9, 5.2], [4.9, 5.4], [5.9, 5.9]])
    assert end.value.value.chosen[RATE] == pytest.approx(2e-3, rel=0.2)


def stalling(losses: Callable[[float], Sequence[float]], rates: Sequence[float], extend: int = 3) -> Tuned:
    """A rate tuned alone, where a loss above 5 is that of a run that stalled."""
    spec = TuneSpec.model_validate({"space": {RATE: list(rates)}, "extend": extend})
    batches = propose(spec, spec.space_around(1e-2), lambda _: True, lambda loss: loss > 5)
    batch = next(batches)
    while True:
        try:
            batch = batches.send([losses(settings[RATE]) for settings in batch])
        except StopIteration as end:
            assert isinstance(end.value, Tuned)
            return end.value


def test_where_every_run_stalls_or_diverges_lower_rates_are_tried_until_one_trains() -> None:
    """Whichever of the losses is the lowest: among runs that stalled, that is noise."""
    rates = [8e-3, 1.6e-2, 3.2e-2]
    for failed in ((5.9, 5.8), (5.9, 5.95), (5.9, math.inf), (math.inf, math.inf)):
        for worst in rates:
            found = stalling(
                lambda rate: (
                    [4 + math.log(rate / 1.2e-3) ** 2] * 2
                    if rate < 3e-3
                    else [loss + 0.01 * (rate != worst) for loss in failed]  # noqa: B023 (called within the loop)
                ),
                rates,
                extend=6,
            )
            tried = [trial.settings[RATE] for trial in found.trials]
            assert tried[:7] == pytest.approx([*rates, 4e-3, 2e-3, 1e-3, 5e-4])
            assert (found.edges, found.trials[6].trains, found.trials[0].trains) == ((), True, False)
            assert found.chosen[RATE] == pytest.approx(1.2e-3, rel=0.15)


def test_where_rates_are_too_low_to_learn_higher_ones_are_tried() -> None:
    """SGD at the rates of Adam: all runs end at the loss of a uniform guess but that of the highest rate, which still
    learned no more than token frequencies. Lower rates were tried, down to a millionth."""

    def losses(rate: float) -> list[float]:
        return [6.93 - min(10 * rate, 4.0)] * 2

    found = stalling(losses, [1e-3, 3e-3, 1e-2, 3e-2, 1e-1])
    tried = [trial.settings[RATE] for trial in found.trials]
    assert (min(tried), tried[5]) == (1e-3, pytest.approx(1 / 3, rel=0.01))
    assert found.least < 5
    assert found.chosen[RATE] > 0.1


def test_where_steps_are_too_few_to_train_no_rate_is_tried_that_is_sure_to_be_worse() -> None:
    """A vocabulary of 8,192 with 137 steps, as measured: every run ends above token frequencies, and seven rates below
    these, down to 7.8e-5, were worse. So the arm keeps its own rate, unless another is plainly better."""
    measured = {5e-3: 6.79, 1e-2: 6.63, 2e-2: 6.59, 4e-2: 6.55, 8e-2: 6.86}
    found = stalling(lambda rate: [1 + measured[rate]], list(measured))
    assert [trial.settings[RATE] for trial in found.trials] == list(measured)
    assert (found.chosen, found.edges) == ({RATE: 2e-2}, ())
    assert found.reason == "no seed trained at any of the 5 rates tried, 0.005 to 0.08"
    assert stalling(lambda rate: [1 + measured[rate] - (rate == 4e-2)], list(measured)).chosen == {RATE: 4e-2}


def test_a_lowest_rate_that_diverges_or_fares_worse_with_another_setting_only_is_not_too_low() -> None:
    """Lower rates are tried, as wherever none trains."""
    losses = {8e-3: math.inf, 1.6e-2: 5.9, 3.2e-2: 5.95}
    found = stalling(lambda rate: [losses.get(rate, 4.0)], list(losses))
    assert found.trials[3].settings == {RATE: 4e-3} and found.chosen[RATE] < 5e-3
    warmups = TuneSpec.model_validate({"space": {"train.warmup": [0.0, 0.2], RATE: [*losses]}, "extend": 1})
    batches = propose(warmups, warmups.space_around(1e-2), lambda _: True, lambda loss: loss > 5)
    worse = [[6.5 if settings["train.warmup"] == 0 else 5.9] for settings in next(batches)]
    assert [settings[RATE] for settings in batches.send(worse)] == [4e-3]


def test_an_arm_that_trains_at_no_rate_keeps_the_middle_of_its_list_and_says_so() -> None:
    found = stalling(lambda rate: [5.9 - rate, 5.9, 5.9], [1e-3, 2e-3, 4e-3])
    assert [trial.settings[RATE] for trial in found.trials] == [1e-3, 2e-3, 4e-3, 5e-4, 2.5e-4, 1.25e-4]
    assert (found.chosen, found.curve, found.edges) == ({RATE: 2e-3}, (), (RATE,))
    assert found.reason == "no seed trained at any of the 6 rates tried, 0.000125 to 0.004"


def test_where_no_seed_trains_only_rates_are_moved() -> None:
    space = {RATE: [1e-3, 2e-3, 4e-3], "train.batch": [4, 8]}
    found = tune(space, lambda _: math.inf, extend=1)
    assert [tuple(trial.settings.values()) for trial in found.trials[6:]] == [(5e-4, 4)]
    assert (found.chosen, found.edges, found.reason) == ({RATE: 2e-3, "train.batch": 4}, (RATE,), None)


def test_without_a_space_five_rates_about_the_arm_s_own_are_tried() -> None:
    spec = TuneSpec()
    first = next(propose(spec, spec.space_around(3.1e-2), lambda _: True))
    assert [settings[RATE] for settings in first] == [7.75e-3, 1.55e-2, 3.1e-2, 6.2e-2, 0.124]
    assert [(each.fraction, each.seeds) for each in spec.passes] == [(0.25, (1000,)), (1.0, (1000, 1001))]
    warmup = TuneSpec.model_validate({"space": {"train.warmup": [0, 0.1]}})
    assert [(each.fraction, each.seeds) for each in warmup.passes] == [(1.0, (1000, 1001))]


def test_a_best_value_inside_the_list_ends_the_search() -> None:
    found = tune({"train.lr": [1e-3, 3e-3, 9e-3]}, bowl(3e-3))
    assert (len(found.trials), found.edges) == (3, ())


def test_where_seeds_do_not_agree_that_a_rate_is_worse_the_next_one_beyond_is_tried() -> None:
    """Two of three rates are alike and far from the best, as runs of toy models were: a dip between them is chance."""
    by_rate = {0.04: (2.7, 2.5), 0.08: (1.4, 1.5), 0.16: (2.59, 2.43), 0.32: (2.38, 2.63), 0.64: (2.73, 2.81)}
    rates: dict[str, Any] = {RATE: [0.16, 0.32, 0.64]}
    found = tune_by_seed(rates, lambda settings: by_rate[settings[RATE]], refine=0)
    assert [trial.settings[RATE] for trial in found.trials] == [0.16, 0.32, 0.64, 0.08, 0.04]
    assert (found.chosen, found.edges) == ({RATE: 0.08}, ())
    alone = tune_by_seed(rates, lambda settings: by_rate[settings[RATE]][:1], refine=0)
    assert (len(alone.trials), alone.chosen) == (3, {RATE: 0.32}), "one seed has nothing to disagree with"


def test_of_many_seeds_one_in_four_may_disagree_and_equal_losses_tell_nothing() -> None:
    def losses(settings: Settings) -> list[float]:
        return [1.0, 1.5, 1.5, 1.5] if settings[RATE] != 2e-3 else [1.1, 1.0, 1.0, 1.0]

    assert len(tune_by_seed({RATE: [1e-3, 2e-3, 4e-3]}, losses, refine=0).trials) == 3
    assert len(tune_by_seed({RATE: [1e-3, 2e-3, 4e-3]}, lambda s: losses(s)[:3], extend=1, refine=0).trials) == 5
    assert len(tune({RATE: [1e-3, 2e-3, 4e-3]}, lambda _: 1.0, seeds=2, extend=1, refine=0).trials) == 4


def test_rates_that_no_seed_tells_apart_are_followed_only_so_far_and_are_no_edge() -> None:
    found = tune_by_seed(
        {RATE: [1e-3, 2e-3, 4e-3]},
        lambda s: (1.0 - 0.1 * (s[RATE] != 2e-3), 1.0 - (s[RATE] == 2e-3)),
        extend=2,
        refine=0,
    )
    assert sorted(trial.settings[RATE] for trial in found.trials) == [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]
    assert (found.chosen, found.edges) == ({RATE: 2e-3}, ())


@pytest.mark.parametrize(("best", "expected"), [(0.08, 0.081), (1.2e-4, 0.000111111)])
def test_an_edge_is_followed_outwards_by_the_factor_of_the_list(best: float, expected: float) -> None:
    found = tune({"train.lr": [1e-3, 3e-3, 9e-3]}, bowl(best))
    assert found.chosen["train.lr"] == pytest.approx(expected)
    assert found.edges == ()  # the value beyond it was tried and is worse


def test_an_edge_is_followed_only_so_far_and_is_then_reported() -> None:
    found = tune({"train.lr": [1e-3, 2e-3]}, lambda s: -s["train.lr"], extend=2)
    assert [trial.settings["train.lr"] for trial in found.trials] == pytest.approx([1e-3, 2e-3, 4e-3, 8e-3])
    assert found.edges == ("train.lr",)


def test_what_an_arm_cannot_be_built_with_is_not_tried() -> None:
    found = tune({"train.warmup": [0.2, 0.6]}, lambda s: -s["train.warmup"], lambda s: s["train.warmup"] <= 1)
    assert [trial.settings["train.warmup"] for trial in found.trials] == [0.2, 0.6]
    assert found.edges == ("train.warmup",)


def warm_up_is_a_share(settings: Settings) -> bool:
    return 0 <= settings["train.warmup"] <= 1


def test_where_nothing_legal_lies_beyond_there_is_no_edge() -> None:
    """No warm-up is less than none, so an arm that is best without cannot do better beyond."""
    for space in ([0.0, 0.2], [0, 0.2]):
        found = tune({"train.warmup": space}, lambda s: s["train.warmup"], warm_up_is_a_share)
        assert (found.chosen, found.edges) == ({"train.warmup": 0}, ())
    sampled = tune({"train.warmup": {"range": [0, 0.2]}}, lambda s: s["train.warmup"], warm_up_is_a_share, trials=40)
    assert (sampled.chosen["train.warmup"] < 0.01, sampled.edges) == (True, ())
    other = tune({"train.warmup": {"range": [0, 0.2]}}, lambda s: -s["train.warmup"], warm_up_is_a_share, trials=40)
    assert other.edges == ("train.warmup",)


def test_words_have_no_edges() -> None:
    found = tune({"train.schedule": ["cosine", "linear"]}, lambda s: s["train.schedule"] == "cosine")
    assert (found.chosen, found.edges, len(found.trials)) == ({"train.schedule": "linear"}, (), 2)


def test_whole_numbers_stay_whole() -> None:
    found = tune({"train.batch": [4, 8]}, lambda s: -s["train.batch"], extend=1)
    assert [trial.settings["train.batch"] for trial in found.trials] == [4, 8, 16]
    assert all(type(trial.settings["train.batch"]) is int for trial in found.trials)


def test_one_that_diverges_is_never_chosen_and_all_that_do_choose_the_first() -> None:
    found = tune({"train.lr": [1e-3, 1.0]}, lambda s: math.inf if s["train.lr"] > 0.1 else 4.0, extend=0)
    assert found.chosen == {"train.lr": 1e-3}
    gone = tune({"train.lr": [1e-3, 1.0]}, lambda _: math.inf, extend=0)
    assert (gone.chosen, len(gone.trials)) == ({"train.lr": 1e-3}, 2)


def test_ranges_are_sampled_by_optuna_and_end_near_the_best() -> None:
    found = tune({"train.lr": {"log": [1e-5, 1.0]}}, bowl(3e-3), trials=40)
    assert len(found.trials) == 40
    assert 1e-3 < found.chosen["train.lr"] < 9e-3
    assert found.edges == ()


def test_a_best_value_at_the_end_of_a_range_is_an_edge() -> None:
    found = tune({"train.lr": {"log": [1e-4, 1e-1]}}, lambda s: -s["train.lr"], trials=60)
    assert found.edges == ("train.lr",)


def test_the_same_losses_lead_to_the_same_settings() -> None:
    space = {"train.lr": {"log": [1e-4, 1e-1]}, "train.batch": {"range": [2, 16], "step": 2}}
    first, again = (tune(space, bowl(1e-2), trials=12) for _ in range(2))
    assert first == again
    assert {trial.settings["train.batch"] % 2 for trial in first.trials} == {0}


def test_illegal_draws_are_replaced_and_an_illegal_space_is_an_error() -> None:
    space = {"train.batch": {"range": [1, 8]}}
    found = tune(space, lambda s: s["train.batch"], lambda s: s["train.batch"] % 2 == 0, trials=6)
    assert len(found.trials) == 6
    with pytest.raises(IllegalSpaceError, match="none of 1000"):
        tune(space, lambda s: 0.0, lambda _: False)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "at least 1"),
        ({"train.lr": {"log": [0.0, 1.0]}}, "greater than 0"),
        ({"train.lr": {"log": [1.0, 1e-3]}}, "the range is empty: 1 is not below 0.001"),
        ({"train.lr": 3e-3}, "must be a list of values, or a map"),
    ],
)
def test_bad_spaces(space: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TuneSpec.model_validate({"space": space})
