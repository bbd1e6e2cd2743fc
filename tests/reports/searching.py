"""Searches, as `ablate search` would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna

from ablate.wings.search.documents import Distribution, Range, SearchBase, SearchDocument, TrialRecord, search_folder
from ablate.wings.search.search_document import distribution_of
from store import Store
from store.documents import SpentBudget

RATE = Distribution(name="FloatDistribution", attributes=Range(low=1e-3, high=1e-1, step=None, log=True))


def search_of(trials: Iterable[TrialRecord], space: Iterable[str], **changes: Any) -> SearchDocument:
    """A search for the lowest loss, with `changes`."""
    document = SearchDocument(
        name="null",
        scale="cpu",
        path=None,
        question="Which learning rate?",
        source="question: Which learning rate?\n",
        created="2026-01-02T00:00:00+00:00",
        optuna_study="null-cpu-0",
        budget=SpentBudget(tokens=1000),
        space={path: {} for path in space},
        objectives={"loss": "minimize"},
        sampler="tpe",
        pruner=None,
        shares=(1.0,),
        seeds=(1000,),
        constraints=(),
        base=SearchBase(name="base", runs=(), values=None),
        illegal={},
        trials=tuple(trials),
    )
    return document.model_copy(update=changes)


def trials_of(study: optuna.Study) -> list[TrialRecord]:
    """The trials of a search for one objective, all of them with the whole budget."""
    return [
        TrialRecord(
            number=trial.number,
            state="finished",
            best=trial.number == study.best_trial.number,
            settings=dict(trial.params),
            params=trial.params,
            distributions={path: distribution_of(each) for path, each in trial.distributions.items()},
            values=(trial.value,),
            reached=((trial.value,),),
            curve={},
            runs=(),
            error=None,
        )
        for trial in study.trials
    ]


def write_search(root: Path, name: str) -> Path:
    """The folder of a search with two trials."""
    folder = search_folder(Store(root), name, "cpu")
    trials: Sequence[TrialRecord] = (_trial(0, 1e-2, 2.4), _trial(1, 3e-2, 2.5))
    folder.write(search_of(trials, ["train.lr"], name=name, sampler="random"))
    return folder.path


def _trial(number: int, rate: float, loss: float) -> TrialRecord:
    return TrialRecord(
        number=number,
        state="finished",
        best=number == 0,
        settings={"train.lr": rate},
        params={"train.lr": rate},
        distributions={"train.lr": RATE},
        values=(loss,),
        reached=((loss,),),
        curve={},
        runs=(),
        error=None,
    )
