"""The winner's curse: scores of a search's best trials in the search, and on seeds that did not select them: those of
its confirmation, or of a promoted study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from ablate.wings.search.documents import SearchDocument
from reports.judge.reading.collect import collect
from reports.judge.reading.collected import Collected
from reports.judge.reading.units import judging
from reports.judge.statistics.estimates import Estimate, estimate
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
