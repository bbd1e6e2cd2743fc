"""What a search found, as search.json and as tables (docs/architecture.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pandas
from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from ablate.planning.identity import SCHEMA, digest_of
from ablate.searching.asking import counts_of_illegal
from ablate.searching.laboratory import StudyLaboratory
from ablate.searching.ranks import fronts
from ablate.searching.samplers import ended
from ablate.store.files import replacing

Done = Sequence[Mapping[int, tuple[float, ...]]]
"""Values by trial, per share of the budget."""


def search_digest(lab: StudyLaboratory) -> str:
    """Of all that decides what a trial scores: a search that differs in it is another search.

    How many trials there are, which sampler proposes them and what prunes them may change as it goes on.
    """
    plan, spec = lab.base, lab.spec.model_dump(mode="json", exclude={"trials", "sampler", "pruner"})
    return digest_of(
        {
            "search": spec,
            "model": plan.spec.resolve(),
            "train": plan.train.model_dump(mode="json"),
            "budget": lab.study.budget.model_dump(mode="json"),
            "data": lab.base.identity.digest,
        }
    )[:8]


def search_document(lab: StudyLaboratory, study: optuna.Study, done: Done) -> dict[str, Any]:
    """search.json. The values of a trial are those at the whole budget, null where it did not get there."""
    spec, whole = lab.spec, done[-1]
    best = set(fronts(whole, list(spec.objectives.values()))[0]) if whole else set()
    trials = [trial for trial in study.get_trials(deepcopy=False) if ended(trial)]
    return {
        "schema": SCHEMA,
        "name": lab.study.name,
        "scale": lab.study.scale,
        "path": str(lab.study.path.resolve()) if lab.study.path else None,
        "question": lab.study.question,
        "source": lab.study.text,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "optuna_study": study.study_name,
        "budget": lab.study.budget.model_dump(exclude_none=True),
        "space": {path: axis.model_dump(mode="json", exclude_none=True) for path, axis in spec.space.items()},
        "objectives": spec.objectives,
        "sampler": spec.sampler,
        "pruner": spec.pruner,
        "shares": list(spec.shares),
        "seeds": list(spec.seed_numbers),
        "constraints": list(spec.constraints),
        "base": _base(lab),
        "illegal": dict(counts_of_illegal(study).most_common()),
        "trials": [_trial(lab, trial, done, trial.number in best) for trial in trials],
    }


def _trial(lab: StudyLaboratory, trial: FrozenTrial, done: Done, best: bool) -> dict[str, Any]:
    reached = [_values(values[trial.number]) for values in done if trial.number in values]
    state = trial.state.name.lower()
    if trial.state == TrialState.COMPLETE:
        state = "finished" if len(reached) == len(done) else "short"
    elif trial.state == TrialState.FAIL:
        state = "failed"
    return {
        "number": trial.number,
        "state": state,
        "best": best,
        "settings": lab.space.settings(trial.params),
        "params": trial.params,
        "distributions": {path: json.loads(distribution_to_json(d)) for path, d in trial.distributions.items()},
        "values": reached[-1] if state == "finished" else None,
        "reached": reached,
        "curve": {str(step): value for step, value in trial.intermediate_values.items()},
        "runs": trial.user_attrs.get("runs", []),
        "error": trial.user_attrs.get("error"),
    }


def _base(lab: StudyLaboratory) -> dict[str, Any]:
    """What the base scored with the seeds of trials, once it has been trained."""
    job = lab.control()
    values = lab.values(job)
    return {
        "name": lab.study.baseline,
        "runs": list(job.digests),
        "values": None if values is None else _values(values),
    }


def _values(values: Sequence[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def write_tables(document: Mapping[str, Any], folder: Path) -> None:
    """trials.csv and trials.parquet: one row per trial, its settings and its objectives."""
    rows = []
    for trial in document["trials"]:
        values = dict(zip(document["objectives"], trial["values"] or [], strict=False))
        rows.append({"trial": trial["number"], "state": trial["state"], **values, **trial["params"]})
    frame = pandas.DataFrame(rows, columns=None if rows else ["trial", "state"])
    with replacing(folder / "trials.csv") as path:
        frame.to_csv(path, index=False)
    with replacing(folder / "trials.parquet") as path:
        frame.to_parquet(path, index=False)
