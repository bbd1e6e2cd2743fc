"""Planned arms and runs as flat polars frames."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ablate.planning.campaign import CampaignOutcome
from ablate.planning.memory import MemoryNeed
from evals.costs.machine import Speed

_TEXTS, _WHOLE = ("rung", "axis", "attention"), ("peak_memory_bytes", "microbatch")
"""Columns that may be null in every row, so that their types cannot be inferred."""


def frame_of_arms(
    outcome: CampaignOutcome, speed: Speed, needs: Mapping[str | None, Mapping[str, MemoryNeed]]
) -> pl.DataFrame:
    """A row for each arm of each rung. needs: memory by rung and arm."""
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
            "peak_memory_bytes": needs[rung.plan.study.rung][arm.name].peak_memory_bytes,
            "microbatch": needs[rung.plan.study.rung][arm.name].microbatch,
            "attention": needs[rung.plan.study.rung][arm.name].attention,
            "runs": len(arm.runs),
            **{f"{name}_differs_percent": differs for name, differs in arm.differs.items()},
        }
        for rung in outcome.rungs
        for arm in rung.plan.arms
    ]
    kinds = {
        **dict.fromkeys(_TEXTS, pl.String),
        **dict.fromkeys(_WHOLE, pl.Int64),
        "kv_bytes_per_token": pl.Float64,
    }
    return pl.DataFrame(rows, schema_overrides=kinds)


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
