"""Races between leaders: what noise does to first scores, who is given up, and how the seeds of a search are spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
import pytest
from scipy.stats import binom

from ablate.wings.search.asking import BEYOND, IMPORTED, REPEAT, REPEATS, seeds_of
from ablate.wings.search.racing import standings
from ablate.wings.search.shown.standings import standings as reported
from ablate.wings.search.trial_runner import Job
from store.documents import Leader
from tests.ablate.known import Known, bowl, search, spec_of, study_of
from tests.reports.searching import search_of

ONE = ["minimize"]


def test_first_scores_are_corrected_by_how_far_leaders_fell() -> None:
    found = standings({1: [(1.0,), (1.4,)], 2: [(1.1,), (1.2,)], 3: [(1.2,)]}, ONE)
    assert found.values[3] == pytest.approx((1.45,))  # 0.25 worse, as the two others on average
    assert found.values[1] == pytest.approx(((1.25 + 1.4) / 2,))
    assert found.order() == [2, 1, 3]
    more = standings({1: [(-1.0,), (-1.4,)], 3: [(-1.2,)]}, ["maximize"])
    assert more.values[3] == pytest.approx((1.6,))


def test_the_best_is_rarely_given_up() -> None:
    """Five settings with five seeds each, the best by half a standard deviation: it is given up in at most 5 % of 300
    races, and the worst one, four deviations off, in nearly all."""
    rng, best, worst = np.random.default_rng(0), 0, 0
    means = np.array([0.0, 0.5, 0.5, 0.5, 4.0])
    for _ in range(300):
        scores = {i: [(float(v),) for v in rng.normal(mean, 1.0, 5)] for i, mean in enumerate(means)}
        contenders = standings(scores, ONE).contenders()
        best, worst = best + (0 not in contenders), worst + (4 not in contenders)
    assert best <= binom.ppf(0.99, 300, 0.05)
    assert worst > 285


def test_seeds_go_to_contenders_until_the_best_is_told_apart() -> None:
    assert standings({1: [(1.0,)], 2: [(1.1,)]}, ONE).next() == 1
    uneven = standings({1: [(1.0,), (1.05,)], 2: [(1.02,)]}, ONE)
    assert (uneven.next(), uneven.next(busy={2})) == (2, 1)
    clear = {1: [(1.0,), (1.01,), (1.0,)], 2: [(2.0,), (2.01,), (2.02,)]}
    assert standings(clear, ONE).next() is None
    first = {1: [(1.0,)], 2: [(1.025,)]}  # nothing is repeated yet: the noise from elsewhere says what is close
    assert (standings(first, ONE, noise=0.02).next(), standings(first, ONE, noise=0.01).next()) == (1, None)
    front = {1: [(1.0, 5.0)] * 3, 2: [(2.0, 3.0)], 3: [(3.0, 4.0)]}
    assert standings(front, ["minimize"] * 2).next() == 2  # 3 is not on the front, and 1 has three seeds


def test_trials_that_no_leader_needs_try_new_settings(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    found, _ = search(Known(study, bowl, noise=1e-6), spec_of(study, trials=30, race=0.2), tmp_path)
    assert len(found.trials) == 30 and not any(REPEATS in trial.user_attrs for trial in found.trials)


def test_a_fifth_of_the_trials_are_further_seeds_of_leaders(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    found, _ = search(Known(study, bowl, noise=0.3), spec_of(study, trials=30, race=0.2), tmp_path)
    repeats = [trial for trial in found.trials if REPEATS in trial.user_attrs]
    assert len(found.trials) == 30
    assert 4 <= len(repeats) <= 6  # none is left where every contender has a seed on its way
    for trial in repeats:
        first = found.trials[trial.user_attrs[REPEATS]]
        assert trial.params == first.params and REPEATS not in first.user_attrs
        assert trial.value != first.value  # another seed
    seeds = [(trial.user_attrs[REPEATS], trial.user_attrs[REPEAT]) for trial in repeats]
    assert len(set(seeds)) == len(seeds)
    order = sorted((trial for trial in found.trials[:24]), key=lambda trial: trial.value)
    assert {first for first, _ in seeds} <= {trial.number for trial in order[:12]}


def test_a_trial_beyond_a_limit_is_kept_and_never_the_best(tmp_path: Path) -> None:
    """A measured limit is a constraint for the sampler once it was measured."""

    class Limited(Known):
        def beyond(self, job: Job) -> dict[str, float]:
            params, _ = self.jobs[job.digests[0]]
            return {"peak_memory_bytes <= 1 GB": max(0.0, params["train.warmup"] - 0.1)}

    study = study_of(tmp_path)
    found, _ = search(Limited(study, bowl), spec_of(study, trials=20), tmp_path)
    over = {trial.number for trial in found.trials if BEYOND in trial.user_attrs}
    assert over == {trial.number for trial in found.trials if trial.params["train.warmup"] > 0.1}
    assert len(found.trials) == 20 and not over & set(seeds_of(found.trials))
    assert found.best_trial.number not in over  # optuna's own view, and the dashboard's


def test_trials_from_the_store_cost_nothing(tmp_path: Path) -> None:
    study, storage = study_of(tmp_path), optuna.storages.InMemoryStorage()
    spec = spec_of(study, trials=5, sampler="random")
    first, _ = search(Known(study, bowl), spec, tmp_path)
    begun = optuna.create_study(storage=storage, study_name="known")
    for trial in first.trials:
        known = optuna.trial.create_trial(
            value=trial.value, params=trial.params, distributions=trial.distributions, user_attrs={IMPORTED: True}
        )
        begun.add_trial(known)
    found, _ = search(Known(study, bowl), spec, tmp_path, seed=1, storage=storage)
    assert len(found.trials) == 10


def test_the_page_tells_leaders_apart_by_fresh_seeds_alone() -> None:
    def leader(trial: int, first: float, *fresh: float) -> Leader:
        return Leader(trial=trial, searched=(first,), fresh=tuple((value,) for value in fresh), contends=True)

    close = [leader(3, 1.0, 1.30, 1.32, 1.31), leader(5, 1.1, 1.29, 1.33, 1.31), leader(8, 1.2, 1.60, 1.62, 1.61)]
    found = list(reported(search_of([], [], leaders=tuple(close)), ()))
    assert [(each.trial, each.is_best) for each in found] == [(3, True), (5, True), (8, False)]
    assert found[0].means["loss"] == pytest.approx(1.31)  # not the score that selected it
