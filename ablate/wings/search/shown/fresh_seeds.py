"""Scores of a search's best trials on seeds that did not select them, those of its confirmation or of a promoted study:
the winner's curse, and standings.

Standings say which settings are indistinguishable from the best, and which left the front. A difference from the best
is tested at 5 % over all comparisons (Bonferroni), by the standard deviation between seeds of one setting, pooled over
settings: a single setting has too few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import special  # scipy.stats takes seconds to load

from ablate.wings.search.documents import SearchDocument
from reports.judge.reading.collect import collect, judging
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate, Floats, estimate
from reports.page.sections.costs import Costs
from store import Store

DECLARED = ("parameters", "flops_per_token", "kv_bytes_per_token")
"""Objectives that depend on the model alone, not on the seed."""
MEASURED = ("decode", "prefill")

Searched = Mapping[str, Mapping[str, float]]
"""Scores in the search, by arm of a promoted study and objective."""


@dataclass(frozen=True)
class FreshScore:
    """One objective of an arm: its score in the search, and on fresh seeds."""

    arm: str
    objective: str
    searched: float
    fresh: Estimate | None
    """None if some seed has no score: its training diverged, or has not run."""

    @property
    def difference(self) -> float | None:
        return None if self.fresh is None else self.fresh.mean - self.searched

    @property
    def is_chosen(self) -> bool:
        """Whether the search selected it; False for the base."""
        return self.arm.startswith("trial_")


def fresh_scores(
    store: Store,
    name: str,
    scale: str,
    searched: Searched,
    objectives: Iterable[str],
    runs: Mapping[str, str],
) -> tuple[FreshScore, ...]:
    """Every objective of every arm of the promoted study; empty before it has run.

    Args:
        runs: one run of each trial in the search, by name. An arm is the first trial that trains the same model in the
        same way, whatever its name: trials of an edited space have other numbers. If no run is known, names decide.
    """
    folder = store.study(f"{name}_promoted", scale)
    if not folder.exists:
        return ()
    data = judging(collect(folder.path, sections=[Costs]))  # validation scores, as in the search
    names: dict[str | None, str] = {}
    for trial, digest in runs.items():
        names.setdefault(_trained(store, digest), trial)
    found = []
    for arm in data.study.arms:
        trained = _trained(store, arm.runs[0].digest) if runs and arm.runs else None
        known = names.get(trained) if trained else arm.name
        if known is None or known not in searched:
            continue
        for objective in objectives:
            fresh = _scores(data, objective).get(arm.name, [])
            mean = estimate(fresh) if len(fresh) == len(arm.runs) else None
            found.append(FreshScore(known, objective, searched[known][objective], mean))
    return tuple(sorted(found, key=lambda each: list(searched[each.arm]).index(each.objective)))


def confirmed_scores(document: SearchDocument, searched: Searched) -> Iterator[FreshScore]:
    """Every objective of the arms that the search itself confirmed."""
    for place, objective in enumerate(document.objectives):
        for each in document.confirmed:
            fresh = [value for values in each.values if (value := values[place]) is not None]
            mean = estimate(fresh) if len(fresh) == len(each.values) else None
            if each.arm in searched:
                yield FreshScore(each.arm, objective, searched[each.arm][objective], mean)


def _trained(store: Store, digest: str) -> str | None:
    """Key of a run without its seed: model, training, data and numerics. None if the run is not in the store."""
    run = store.read_run(digest)
    return None if run is None else run.model_dump_json(include={"model", "train", "steps", "data", "numerics"})


def _scores(data: Collected, objective: str) -> dict[str, list[float]]:
    """One score per seed that has one, by arm: the numbers that the search reads of its own runs."""
    ended = data.runs.filter(pl.col("status").is_in(["finished", "stalled"]))  # a search also scores stalled runs
    if objective in DECLARED:
        known = pl.DataFrame([{"arm": arm.name, "value": getattr(arm, objective)} for arm in data.study.arms])
        rows = ended.select("arm").join(known, on="arm")
    elif objective.partition("_")[0] in MEASURED:
        points = data.frames["measures"].filter(kind=objective.partition("_")[0]).drop_nulls("median")
        last = points.sort("context", "batch", descending=[True, False])
        rows = last.group_by("arm", "seed").first().select("arm", value="median")
    elif "." in objective:
        task, _, metric = objective.partition(".")
        rows = data.scores.filter(task=task, metric=metric).select("arm", "value")
    else:
        rows = ended.select("arm", value=objective)
    return {str(arm): part["value"].to_list() for (arm,), part in rows.drop_nulls("value").group_by("arm")}


def selection_bias(fresh: Iterable[FreshScore], objective: str) -> Estimate | None:
    """Mean over the promoted trials of the score on fresh seeds minus the score in the search."""
    own = [each.difference for each in fresh if each.objective == objective and each.is_chosen]
    return estimate([difference for difference in own if difference is not None])


LEVEL = 0.05


@dataclass(frozen=True)
class SearchStanding:
    """Settings, identified by their first trial, with scores on seeds that did not select them."""

    trial: int
    seeds: int
    means: Mapping[str, float]
    """Means of the scores on fresh seeds, by objective."""
    half_widths: Mapping[str, float | None]
    """Half widths of the means' 95 % intervals; None with too few seeds to estimate the noise."""
    is_best: bool
    """With one objective: whether it is not surely worse than the leader. With several: whether no other dominates its
    means."""


def standings(document: SearchDocument, fresh: Iterable[FreshScore]) -> Iterator[SearchStanding]:
    """Standings, the best first by the first objective.

    They share their seeds, and so differ in nothing else.
    """
    scores = _fresh(document, fresh)
    if not scores:
        return
    signs = np.array([1.0 if way == "minimize" else -1.0 for way in document.objectives.values()])
    # noise between seeds of one setting, pooled: (objectives,)
    freedom = sum(len(of) - 1 for of in scores.values())
    squares = sum(((of - of.mean(axis=0)) ** 2).sum(axis=0) for of in scores.values())
    sd = np.sqrt(squares / freedom) if freedom else None
    means = {trial: of.mean(axis=0) for trial, of in scores.items()}
    order = sorted(means, key=lambda trial: float(signs[0] * means[trial][0]))
    for trial in order:
        if len(signs) == 1:
            best = sd is None or not _is_worse(scores, trial, order[0], sd[0], freedom, signs[0])
        else:
            own = signs * means[trial]
            # weakly better everywhere and strictly better somewhere: dominated
            best = not any((signs * of <= own).all() and (signs * of < own).any() for of in means.values())
        halves = None if sd is None else special.stdtrit(freedom, 1 - LEVEL / 2) * sd / math.sqrt(len(scores[trial]))
        yield SearchStanding(
            trial,
            len(scores[trial]),
            dict(zip(document.objectives, map(float, means[trial]), strict=True)),
            {name: None if halves is None else float(halves[i]) for i, name in enumerate(document.objectives)},
            best,
        )


def _is_worse(scores: Mapping[int, Floats], trial: int, leader: int, sd: float, freedom: int, sign: float) -> bool:
    """Whether a setting is worse than the leader beyond the noise."""
    if trial == leader:
        return False
    ours, best = scores[trial][:, 0], scores[leader][:, 0]
    error = sd * math.sqrt(1 / len(ours) + 1 / len(best))
    return bool(sign * (ours.mean() - best.mean()) > special.stdtrit(freedom, 1 - LEVEL / (len(scores) - 1)) * error)


def _fresh(document: SearchDocument, fresh: Iterable[FreshScore]) -> dict[int, Floats]:
    """(seeds, objectives) of each trial that has all scores for every fresh seed; likewise of the base, if it is a
    trial."""
    base, numbers = document.base, dict[str, int]()
    for trial in reversed(document.trials):  # reversed: the first of equal trials wins
        numbers[f"trial_{trial.number}"] = trial.number
        if base.runs and trial.runs == base.runs:
            numbers[base.name] = trial.number
    by_arm: dict[int, dict[str, tuple[float, ...]]] = {}
    for each in fresh:
        if each.arm in numbers and each.fresh is not None:
            by_arm.setdefault(numbers[each.arm], {})[each.objective] = each.fresh.values
    whole = {trial: of for trial, of in by_arm.items() if set(of) == set(document.objectives)}
    return {trial: np.array([of[name] for name in document.objectives]).T for trial, of in whole.items()}
