"""The winner's curse: what the best of a search scored there, and with seeds that they were not chosen by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from ablate.store import Store
from reports.reading.collect import collect
from reports.reading.collected import Collected
from reports.reading.units import judging
from reports.statistics.estimates import Estimate, estimate

DECLARED = ("parameters", "flops_per_token", "kv_bytes_per_token")
"""Objectives that follow from the model, whatever the seed."""
MEASURED = ("decode", "prefill")

Searched = Mapping[str, Mapping[str, float]]
"""Scores in the search of each arm of a promoted study, by objective."""


@dataclass(frozen=True)
class FreshScore:
    """One objective of an arm: its score in the search, and with fresh seeds."""

    arm: str
    objective: str
    searched: float
    fresh: Estimate | None
    """None where not every seed has a score: training diverged, or has not been run."""

    @property
    def difference(self) -> float | None:
        return None if self.fresh is None else self.fresh.mean - self.searched

    @property
    def is_chosen(self) -> bool:
        """Whether the search chose it, rather than began from it."""
        return self.arm.startswith("trial_")


def fresh_scores(
    store: Store,
    name: str,
    scale: str,
    searched: Searched,
    objectives: Iterable[str],
    runs: Mapping[str, str] = MappingProxyType({}),
) -> tuple[FreshScore, ...]:
    """Every objective of every arm of the promoted study; none before it has been run.

    Args:
        runs: a run of each in the search, by name. An arm is the first trial that trains the same model in the same
            way, whatever its name: trials of an edited space have other numbers. Where no run is known, names decide.
    """
    folder = store.study(f"{name}_promoted", scale)
    if not folder.exists:
        return ()
    data = judging(collect(folder.path))  # as in the search, so that seeds are all that differs
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


def _trained(store: Store, digest: str) -> str | None:
    """All that decides a run's numbers but its seed; None where the run is not in the store."""
    run = store.read_run(digest)
    return None if run is None else run.model_dump_json(include={"model", "train", "steps", "data", "numerics"})


def _scores(data: Collected, objective: str) -> dict[str, list[float]]:
    """One score per seed that has one, by arm: the same numbers that the search reads of its own runs."""
    ended = data.runs.filter(pl.col("status").is_in(["finished", "stalled"]))  # a search scores those that stalled too
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
    """Mean over the promoted trials of the score with fresh seeds, less that in the search."""
    own = [each.difference for each in fresh if each.objective == objective and each.is_chosen]
    return estimate([difference for difference in own if difference is not None])
