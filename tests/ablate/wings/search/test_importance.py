"""Settings that are said to matter in a search: none where nothing does, and the right ones where something does."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

import numpy as np
import optuna
import pytest
from scipy.stats import binom

from ablate.wings.search.shown import additive, search_words
from ablate.wings.search.shown.importance import importances
from ablate.wings.search.shown.search_page import render_page
from ablate.wings.search.shown.search_summary import SearchSummary
from tests.reports.browsing import data_of
from tests.reports.searching import search_of, trials_of

SIMULATIONS = 30
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


def designed(rng: np.random.Generator, count: int = 50) -> tuple[np.ndarray, list[additive.AdditiveTerm]]:
    """Three numbers in [-1, 1], and their terms beside that of a choice."""
    numbers = rng.uniform(-1, 1, (count, 3))
    terms = [additive.number(column, -1, 1) for column in numbers.T]
    return numbers, [*terms, additive.choice(rng.integers(0, 4, count), 4)]


def test_features_are_orthonormal_over_the_space() -> None:
    """So that the sum of their squared weights is a variance."""
    number = additive.number(np.linspace(-1, 1, 20_001), -1, 1).features
    choice = additive.choice(np.repeat(np.arange(4), 100), 4).features
    for features in (number, choice):
        assert np.abs(features.mean(axis=0)).max() < 1e-3
        assert features.T @ features / len(features) == pytest.approx(np.eye(features.shape[1]), abs=2e-3)


def test_intervals_of_shares_cover_the_true_ones() -> None:
    """90 % of them, in simulations whose shares are known: a slope has 1/2, a parabola 1/5, noise the rest."""
    covered = 0
    for seed in range(SIMULATIONS):
        rng = np.random.default_rng(seed)
        numbers, terms = designed(rng)
        slope, parabola = terms[0].features[:, 0], terms[1].features[:, 1]
        scores = math.sqrt(0.5) * slope + math.sqrt(0.2) * parabola + rng.normal(0, math.sqrt(0.3), len(numbers))
        draws = additive.shares(scores, terms)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        covered += int(low[0] <= 0.5 <= high[0]) + int(low[1] <= 0.2 <= high[1])
    assert binom.ppf(0.005, 2 * SIMULATIONS, 0.9) <= covered


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


def test_a_null_search_cannot_tell() -> None:
    rng = np.random.default_rng(1)
    search = searched(lambda _: float(rng.normal()), seed=0)
    found = importances(search, 0)
    (said,) = search_words.matters(search, {"loss": found})
    assert not any(each.matters for each in found)
    assert "unclear for " in said or "hardly matter" in said
    assert sum(each.ped_anova or 0 for each in found) == pytest.approx(1)  # PED-ANOVA alone would tell a story
    assert all(each.low <= each.share <= each.high for each in found)


def test_what_a_cost_depends_on_is_found_and_nothing_else() -> None:
    found = importances(searched(lambda trial: float(trial.params["n_layers"]), seed=5), 0)
    (layers, *others) = found
    assert (layers.path, layers.verdict) == ("n_layers", "matters") and layers.low > 0.9
    assert {each.verdict for each in others} == {"hardly matters"} and len(others) == 3


def test_what_matters_is_found_also_with_its_best_in_the_middle() -> None:
    rng = np.random.default_rng(2)

    def score(trial: optuna.Trial) -> float:
        return abs(np.log10(trial.params["train.lr"] / 3e-3)) + float(rng.normal(0, 0.1))

    found = importances(searched(score, seed=3), 0)
    assert [each.path for each in found if each.matters] == ["train.lr"]
    assert found[0].path == "train.lr"
    assert found[0].share > 0.5


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Optuna's log, as chatty as a program that sets nothing has it."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger, level = logging.getLogger("optuna"), optuna.logging.get_verbosity()
    logger.addHandler(handler)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    yield lines
    optuna.logging.set_verbosity(level)
    logger.removeHandler(handler)


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_a_page_is_made_without_a_word_of_optuna(ways: int, logged: list[str]) -> None:
    """Also where all trials share one value of a setting, which has no contour."""
    search = searched(lambda trial: float(trial.number), seed=0, trials=15)
    one = next(iter(search.trials)).params["n_layers"]
    names = ("loss", "parameters", "flops_per_token")[:ways]
    trials = tuple(
        each.model_copy(update={"params": {**each.params, "n_layers": one}, "values": tuple(each.scores * ways)})
        for each in search.trials
    )
    changes = {"trials": trials, "objectives": dict.fromkeys(names, "minimize")}
    optuna.logging.set_verbosity(optuna.logging.INFO)
    logged.clear()
    page = render_page(SearchSummary(search.document.model_copy(update=changes), ()))
    assert logged == []
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert "Contour: loss" in page
    (contour,) = (trace for trace in data_of(page)["figures"]["contour-0"]["data"] if trace["type"] == "contour")
    assert len(contour["x"]) > 1 and len(contour["y"]) > 1


def test_the_page_escapes_what_a_study_says_and_names_what_was_refused() -> None:
    rng = np.random.default_rng(3)
    page = render_page(searched(lambda _: float(rng.normal()), seed=0, trials=15))
    assert "<i>anything" not in page and "&lt;i&gt;anything" in page
    assert "<b>rms" not in page
    assert "3 illegal proposals were skipped" in page
    for title in ("History: loss", "Parallel coordinates: loss", "Slices: loss", "Contour: loss", "Importances: loss"):
        assert title in page
