"""A plan as documents: study.json, `ablate plan --json`, and rows for a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ablate.plan import SCHEMA, UTILISATION, ArmPlan, Plan


def study_document(plan: Plan, created: datetime | None = None) -> dict[str, Any]:
    """study.json of a plan (docs/architecture.md)."""
    study = plan.study
    return {
        "schema": SCHEMA,
        "name": study.name,
        "scale": study.scale,
        "question": study.question,
        "citation": study.source,
        "source": study.text,
        "baseline": study.baseline,
        "budget": study.budget.model_dump(exclude_none=True),
        "matched": study.budget.matched,
        "created": (created or datetime.now(UTC)).isoformat(timespec="seconds"),
        "arms": [_arm_document(arm) for arm in plan.arms],
        "measure": plan.measure_digest,
        "evals": plan.evals_digest,
    }


def _arm_document(arm: ArmPlan) -> dict[str, Any]:
    return {
        **_costs(arm),
        "cache_bytes": [{"context": context, "bytes": size} for context, size in arm.cache_bytes],
        "differs": arm.differs,
        "runs": [{"digest": run.digest, "seed": run.seed} for run in arm.runs],
    }


def _costs(arm: ArmPlan) -> dict[str, Any]:
    return {
        "name": arm.name,
        "edits": arm.edits,
        "matching": arm.matching,
        "parameters": arm.parameters,
        "parameters_embedding": arm.parameters_embedding,
        "flops_per_token": arm.flops_per_token,
        "tokens": arm.tokens,
        "steps": arm.steps,
        "kv_bytes_per_token": arm.kv_bytes_per_token,
        "seconds": arm.seconds,
    }


def plan_json(plan: Plan, flops_per_second: float | None = None, utilisation: float = UTILISATION) -> dict[str, Any]:
    """The document of `ablate plan --json`.

    `estimated_seconds` is the training time of one run at a share `utilisation` of the device's matmul peak; null where
    `flops_per_second` is not given. Where the time of a step was measured it is that time, and `seconds` says it too.
    """

    arms = [
        {
            **_costs(arm),
            "flops": arm.flops,
            "estimated_seconds": _seconds(arm, flops_per_second, utilisation),
            "matched": arm.matched,
            "differs": arm.differs,
        }
        for arm in plan.arms
    ]
    study = plan.study
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "seeds": list(study.seeds),
        "budget": study.budget.model_dump(exclude_none=True),
        "utilisation": utilisation,
        "runs": [{"digest": run.digest, "arm": run.arm, "seed": run.seed} for run in plan.runs],
        "arms": arms,
    }


def _seconds(arm: ArmPlan, flops_per_second: float | None, utilisation: float) -> float | None:
    return arm.seconds if flops_per_second is None else arm.estimated_seconds(flops_per_second, utilisation)


def plan_rows(
    plan: Plan, flops_per_second: float | None = None, utilisation: float = UTILISATION
) -> list[tuple[str, ...]]:
    """The same as text, a header first: one row per arm, differences from the baseline in per cent.

    What matching edited has a column of its own where it edited something.
    """
    columns = ["arm", "parameters", "embedding", "FLOP/token", "steps", "tokens", "FLOPs", "KV bytes/token"]
    solved = ["solved to match"] * any(arm.matching for arm in plan.arms)
    rows = [(*columns, "seconds/run", *solved)]
    for arm in plan.arms:
        estimate = _seconds(arm, flops_per_second, utilisation)
        edits = ", ".join(f"{path}={value}" for path, value in arm.matching.items())
        rows.append(
            (
                arm.name,
                f"{arm.parameters:,}{_percent(arm.differs['parameters'])}",
                f"{arm.parameters_embedding:,}",
                f"{arm.flops_per_token:,.0f}",
                f"{arm.steps:,}",
                f"{arm.tokens:,}{_percent(arm.differs['tokens'])}",
                f"{arm.flops:.3g}{_percent(arm.differs['flops'])}",
                f"{arm.kv_bytes_per_token:,.0f}",
                "" if estimate is None else f"{estimate:,.0f}{_percent(arm.differs.get('seconds', 0.0))}",
                *([edits] * len(solved)),
            )
        )
    return rows


def matched_line(plan: Plan) -> str:
    """`Matched: flops and parameters. In brackets: the difference from pre.`"""
    return f"Matched: {plan.study.budget.matched}. In brackets: the difference from {plan.study.baseline}."


def _percent(difference: float) -> str:
    return "" if abs(difference) < 0.05 else f" ({difference:+.1f} %)"
