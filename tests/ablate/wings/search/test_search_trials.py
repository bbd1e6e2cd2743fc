"""Which trials of a search count, and which settings may be the best."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from ablate.wings.search.asking import BEYOND, IMPORTED, REPEAT, REPEATS, seeds_of
from ablate.wings.search.search_document import scores_of
from ablate.wings.search.trial_runner import Job
from tests.ablate.known import Known, bowl, search, spec_of, study_of


def test_settings_that_are_proposed_again_train_with_the_next_seed(tmp_path: Path) -> None:
    study = study_of(tmp_path, "{n_layers: {range: [1, 2]}}")
    lab = Known(study, lambda params: (params["n_layers"],), noise=0.3)
    found, one = search(lab, spec_of(study, trials=8, sampler="random", pruner=None), tmp_path)
    by_layers: dict[int, list[float]] = {}
    for trial in found.trials:
        earlier = by_layers.setdefault(trial.params["n_layers"], [])
        assert trial.user_attrs.get(REPEAT, 0) == len(earlier) and trial.value not in earlier
        earlier.append(trial.value or 0.0)
    firsts = {trial.params["n_layers"]: trial.number for trial in found.trials if REPEATS not in trial.user_attrs}
    expected = {firsts[layers]: (pytest.approx(statistics.fmean(of)),) for layers, of in by_layers.items()}
    assert len(expected) == 2 and scores_of(found, one.done) == expected


def test_a_repeat_is_not_pruned_and_stands_for_settings_whose_first_trial_was(tmp_path: Path) -> None:
    """A mean without its bad seeds would flatter, and a record without scores cannot be the best."""
    study = study_of(tmp_path, "{train.lr: [1e-4, 3e-4, 1e-3, 3e-3], block.ffn.d_ff: {choice: [64, 128, 192]}}")
    lab = Known(study, lambda params: (abs(math.log10(params["train.lr"] / 1e-3)),), noise=1.0)
    found, one = search(lab, spec_of(study, trials=48, sampler="random", pruner="median"), tmp_path)
    pruned = [trial for trial in found.trials if trial.state == TrialState.PRUNED]
    assert not any(REPEATS in trial.user_attrs for trial in pruned)
    complete: dict[str, list[FrozenTrial]] = {}
    for trial in found.trials:
        if trial.state == TrialState.COMPLETE:
            complete.setdefault(str(trial.params), []).append(trial)
    assert any(str(trial.params) in complete for trial in pruned)
    means = {of[0].number: statistics.fmean(trial.values[0] for trial in of) for of in complete.values()}
    assert {number: value for number, (value,) in scores_of(found, one.done).items()} == pytest.approx(means)


def test_a_trial_beyond_a_limit_is_kept_and_never_the_best(tmp_path: Path) -> None:
    """A measured limit is a constraint for the sampler once it was measured."""

    class Limited(Known):
        def beyond(self, job: Job) -> dict[str, float]:
            params, _ = self.jobs[job.digests[0]]
            return {"peak_memory_bytes <= 1 GB": max(0.0, params["train.warmup"] - 0.1)}

    study = study_of(tmp_path)
    found, _ = search(Limited(study, bowl), spec_of(study, trials=20, pruner=None), tmp_path)
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
