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
        "matched": study.budget.kind,
        "margin": study.sections.margin,
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
        "parameters": arm.parameters,
        "parameters_embedding": arm.parameters_embedding,
        "flops_per_token": arm.flops_per_token,
        "tokens": arm.tokens,
        "steps": arm.steps,
        "kv_bytes_per_token": arm.kv_bytes_per_token,
    }


def plan_json(plan: Plan, flops_per_second: float | None = None, utilisation: float = UTILISATION) -> dict[str, Any]:
    """The document of `ablate plan --json`.

    `estimated_seconds` is the training time of one run at a share `utilisation` of the device's matmul peak; null where
    `flops_per_second` is not given.
    """

    def seconds(arm: ArmPlan) -> float | None:
        return None if flops_per_second is None else arm.estimated_seconds(flops_per_second, utilisation)

    arms = [
        {
            **_costs(arm),
            "flops": arm.flops,
            "estimated_seconds": seconds(arm),
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


def plan_rows(
    plan: Plan, flops_per_second: float | None = None, utilisation: float = UTILISATION
) -> list[tuple[str, ...]]:
    """The same as text, a header first: one row per arm, differences from the baseline in per cent."""
    header = ("arm", "parameters", "embedding", "FLOP/token", "steps", "tokens", "KV bytes/token", "seconds/run")
    rows: list[tuple[str, ...]] = [header]
    for arm in plan.arms:
        estimate = "" if flops_per_second is None else f"{arm.estimated_seconds(flops_per_second, utilisation):,.0f}"
        rows.append(
            (
                arm.name,
                f"{arm.parameters:,}{_percent(arm.differs['parameters'])}",
                f"{arm.parameters_embedding:,}",
                f"{arm.flops_per_token:,.0f}",
                f"{arm.steps:,}",
                f"{arm.tokens:,}{_percent(arm.differs['tokens'])}",
                f"{arm.kv_bytes_per_token:,.0f}",
                estimate,
            )
        )
    return rows


def _percent(difference: float) -> str:
    return "" if abs(difference) < 0.05 else f" ({difference:+.1f} %)"
