"""A search's page beside Optuna's own words and a study's: it logs nothing, and escapes everything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import optuna
import pytest

from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.search_page import render_page
from ablate.wings.search.shown.search_summary import SearchSummary
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


def test_a_best_at_the_end_of_a_range_is_said_to_be_there() -> None:
    search = searched(lambda trial: trial.params["n_layers"] + abs(np.log10(trial.params["train.lr"] / 3e-3)), seed=6)
    assert search_words.edges(search) == [
        "The best trial is at the end of the range of n_layers (1): values beyond it were not tried."
    ]
    assert search_words.edges(searched(lambda trial: abs(trial.params["n_layers"] - 3), seed=6)) == []


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
    search = searched(lambda trial: float(trial.number), seed=0, trials=15)
    names = ("loss", "parameters", "flops_per_token")[:ways]
    trials = tuple(each.model_copy(update={"values": tuple(each.scores * ways)}) for each in search.trials)
    changes = {"trials": trials, "objectives": dict.fromkeys(names, "minimize")}
    optuna.logging.set_verbosity(optuna.logging.INFO)
    logged.clear()
    render_page(SearchSummary(search.document.model_copy(update=changes), ()))
    assert logged == []
    assert optuna.logging.get_verbosity() == optuna.logging.INFO


def test_the_page_escapes_what_a_study_says_and_names_what_was_refused() -> None:
    rng = np.random.default_rng(3)
    page = render_page(searched(lambda _: float(rng.normal()), seed=0, trials=15))
    assert "<i>anything" not in page and "&lt;i&gt;anything" in page
    assert "<b>rms" not in page
    assert "3 illegal proposals were skipped" in page
    for title in ("History: loss", "Parallel coordinates: loss", "Slices: loss"):
        assert title in page
