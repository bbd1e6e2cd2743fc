"""Settings that are said to matter in a search: none where nothing does, and the right ones where something does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest
from scipy.stats import f_oneway, rankdata

from reports.findings.effects import effect_ps
from reports.findings.importance import RESAMPLES, importances
from reports.findings.searches import SearchSummary
from reports.pages.search_page import render_page
from reports.wording import search_words
from tests.reports.searching import search_of, trials_of

PATHS = ("train.lr", "n_layers", "block.ffn", "block.norm")


def searched(score: Callable[[optuna.Trial], float], seed: int, trials: int = 40) -> SearchSummary:
    """A search by TPE, which looks where scores were good."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("train.lr", 1e-4, 1e-1, log=True)
        trial.suggest_int("n_layers", 1, 6)
        trial.suggest_categorical("block.ffn", ["swiglu", "gelu", "relu"])
        trial.suggest_categorical("block.norm", ["<b>rms</b>", "layer"])
        return score(trial)

    study.optimize(objective, n_trials=trials)
    question, illegal = "Does <i>anything</i> matter?", {"n_layers <= 6": 3}
    return SearchSummary(search_of(trials_of(study), PATHS, question=question, illegal=illegal), ())


def test_a_choice_alone_is_the_analysis_of_variance_of_ranks() -> None:
    rng = np.random.default_rng(4)
    search = searched(lambda _: float(rng.normal()), seed=1)
    values = np.array([trial.values[0] for trial in search.scored])  # type: ignore[index]
    kinds = np.array([trial.params["block.ffn"] for trial in search.scored])
    ranks = rankdata(values)
    expected = f_oneway(*(ranks[kinds == kind] for kind in set(kinds))).pvalue
    assert effect_ps(search.scored, values, ["block.ffn"]) == pytest.approx({"block.ffn": expected})


def test_an_exact_score_is_told_apart_from_what_was_chosen_along_with_it() -> None:
    """A score such as a cache's bytes follows exactly from the layers: no noise is left to test against."""
    search = searched(lambda trial: float(trial.params["n_layers"] > 3), seed=5)
    mattering = [each.path for each in importances(search, 0) if each.matters]
    assert mattering == ["n_layers"]


def test_a_best_at_the_end_of_a_range_is_said_to_be_there() -> None:
    search = searched(lambda trial: trial.params["n_layers"] + abs(np.log10(trial.params["train.lr"] / 3e-3)), seed=6)
    assert search_words.edges(search) == [
        "The best trial is at the end of the range of n_layers (1): values beyond it were not tried."
    ]
    assert search_words.edges(searched(lambda trial: abs(trial.params["n_layers"] - 3), seed=6)) == []


def test_where_nothing_matters_nothing_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 5 %, for a search as a whole: of 60 searches of noise 3 are expected, and 8 or fewer with 99 % chance."""
    monkeypatch.setattr("reports.findings.importance.RESAMPLES", 1)
    monkeypatch.setattr("reports.findings.importance.TREES", 1)
    rng = np.random.default_rng(0)
    wrong = 0
    for seed in range(60):
        search = searched(lambda _: float(rng.normal()), seed, trials=30)
        wrong += any(each.matters for each in importances(search, 0))
    assert wrong <= 8


def test_a_null_search_says_so_in_words() -> None:
    rng = np.random.default_rng(1)
    search = searched(lambda _: float(rng.normal()), seed=0)
    found = importances(search, 0)
    assert search_words.matters(search, {"loss": found}) == ["loss: no setting has a detectable effect."]
    assert RESAMPLES > 1
    assert sum(each.share or 0 for each in found) == pytest.approx(1)  # fANOVA alone would tell a story
    assert all(each.low is not None and each.high is not None and each.low <= (each.share or 0) for each in found)


def test_what_matters_is_found_also_with_its_best_in_the_middle() -> None:
    rng = np.random.default_rng(2)

    def score(trial: optuna.Trial) -> float:
        return abs(np.log10(trial.params["train.lr"] / 3e-3)) + float(rng.normal(0, 0.1))

    found = importances(searched(score, seed=3), 0)
    assert [each.path for each in found if each.matters] == ["train.lr"]
    assert found[0].path == "train.lr"
    assert found[0].share is not None and found[0].share > 0.5


def test_the_page_escapes_what_a_study_says_and_names_what_was_refused() -> None:
    rng = np.random.default_rng(3)
    page = render_page(searched(lambda _: float(rng.normal()), seed=0, trials=15))
    assert "<i>anything" not in page and "&lt;i&gt;anything" in page
    assert "<b>rms" not in page
    assert "3 illegal proposals were skipped" in page
    for title in ("History: loss", "Parallel coordinates: loss", "Slices: loss", "Contour: loss", "Importances: loss"):
        assert title in page
