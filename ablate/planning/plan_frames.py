"""Planned arms and runs as flat polars frames."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ablate.planning.campaign import CampaignOutcome
from ablate.planning.plan_shown import Foretold
from evals.costs.machine import Speed


def frame_of_arms(
    outcome: CampaignOutcome, speed: Speed, foretold: Foretold, kinds: Mapping[str, type]
) -> pl.DataFrame:
    """A row for each arm of each rung. kinds: types of the fields that are foretold."""
    rows = [
        {
            "arm": arm.name,
            "rung": rung.plan.study.rung,
            "axis": rung.axis,
            "parameters": arm.parameters,
            "parameters_embedding": arm.parameters_embedding,
            "flops_per_token": float(arm.flops_per_token),
            "steps": arm.steps,
            "tokens": arm.tokens,
            "tokens_per_parameter": arm.length.tokens_per_parameter,
            "flops": float(arm.flops),
            "kv_bytes_per_token": arm.kv_bytes_per_token,
            "seconds": arm.estimated_seconds(speed),
            **foretold(rung.plan, arm),
            "runs": len(arm.runs),
            **{f"{name}_differs_percent": differs for name, differs in arm.differs.items()},
        }
        for rung in outcome.rungs
        for arm in rung.plan.arms
    ]
    # Columns that may be null in every row, so that their types cannot be inferred.
    nullable = {"rung": str, "axis": str, "kv_bytes_per_token": float, **kinds}
    types = {str: pl.String, int: pl.Int64, float: pl.Float64}
    return pl.DataFrame(rows, schema_overrides={name: types[kind] for name, kind in nullable.items()})


def frame_of_runs(outcome: CampaignOutcome, done: Mapping[str, bool]) -> pl.DataFrame:
    """A row for each run. done: whether the store has its result, by digest."""
    rows = [
        {
            "digest": run.digest,
            "arm": run.arm,
            "seed": run.seed,
            "rung": rung.plan.study.rung,
            "reused": done[run.digest],
        }
        for rung in outcome.rungs
        for run in rung.plan.runs
    ]
    return pl.DataFrame(rows, schema_overrides={"rung": pl.String})
