"""A plan as documents: study.json, `ablate plan --json`, and rows for a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ablate.planning.campaign import Outcome, Size, Tuning
from ablate.planning.identity import SCHEMA
from ablate.planning.plan import UTILISATION, ArmPlan, Plan
from ablate.study.study import Study
from ablate.training.objectives import Objective
from ablate.training.objectives.next_token import NextToken
from evals.costs.prompts import convention


def study_document(outcome: Outcome, created: datetime | None = None) -> dict[str, Any]:
    """study.json of what a study planned (docs/architecture.md)."""
    plan = outcome.plan
    study = plan.study
    return {
        "schema": SCHEMA,
        "name": study.name,
        "scale": study.scale,
        "path": str(study.path.resolve()) if study.path else None,
        "question": study.question,
        "citation": study.source,
        "source": study.text,
        "baseline": study.baseline,
        "budget": study.budget.model_dump(exclude_none=True),
        "matched": study.budget.matched,
        "margin": study.sections.margin,
        "per": _per(study),
        "objective": _objective(study.train.objective),
        "conventions": _conventions(plan),
        "created": (created or datetime.now(UTC)).isoformat(timespec="seconds"),
        "arms": [_arm_document(arm) for arm in plan.arms],
        "measure": plan.measure_digest,
        "evals": plan.evals_digest,
        "looks": [asdict(look) for look in outcome.looks] or None,
        "tuning": _tuning_documents(outcome.sizes[-1]),
        "ladder": [_size_document(size) for size in outcome.sizes] if len(outcome.sizes) > 1 else [],
    }


def _per(study: Study) -> str:
    """What losses are compared per."""
    if study.own_tokenizers:
        return "byte"
    return "token" if study.train.objective == NextToken() else "target"


def _conventions(plan: Plan) -> list[str]:
    """What a context is for arms that are not causal decoders."""
    found = (convention(arm.spec) for arm in plan.arms)
    return list(dict.fromkeys(sentence for sentence in found if sentence is not None))


def _objective(objective: Objective) -> dict[str, str] | None:
    """What the loss counts, where it is not every token."""
    if objective == NextToken():
        return None
    return {"kind": objective.kind, "counts": objective.counts}


def judged_before(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[int]:
    """Numbers of seeds at which a study, now `new`, was judged before, but for the looks that it plans.

    `old` is the study.json that stood there, all of its runs done. Another baseline is another study.
    """
    if old is None:
        return []
    before, now = (_baseline_runs(document) for document in (old, new))
    if not (before <= now or now <= before):
        return []
    known = set(old.get("judged", ()))
    if old.get("looks") != new["looks"]:
        known |= {look["seeds"] for look in old.get("looks") or () if look["seeds"] <= len(before)}
    if not old.get("looks"):
        known.add(len(before))
    return sorted(known)


def _baseline_runs(document: Mapping[str, Any]) -> set[str]:
    return {run["digest"] for run in document["arms"][0]["runs"]}


def _size_document(size: Size) -> dict[str, Any]:
    arms = [_arm_document(arm) for arm in size.plan.arms]
    return {"name": size.plan.study.rung, "arms": arms, "tuning": _tuning_documents(size)}


def _tuning_documents(size: Size) -> list[dict[str, Any]]:
    tune = size.plan.study.tune
    fraction = tune.fraction if tune else None
    return [{**_tuning_document(tuning), "fraction": fraction} for tuning in size.tunings]


def _tuning_document(tuning: Tuning) -> dict[str, Any]:
    trials = [
        {"settings": trial.settings, "loss": trial.loss if math.isfinite(trial.loss) else None, "runs": list(runs)}
        for trial, runs in zip(tuning.tuned.trials, tuning.runs, strict=True)
    ]
    return {"arm": tuning.arm, "chosen": tuning.tuned.chosen, "edges": list(tuning.tuned.edges), "trials": trials}


def _arm_document(arm: ArmPlan) -> dict[str, Any]:
    return {
        **_costs(arm),
        "data": arm.identity.digest,
        "cache_bytes": [{"context": context, "bytes": size} for context, size in arm.cache_bytes],
        "differs": arm.differs,
        "runs": [{"digest": run.digest, "seed": run.seed} for run in arm.runs],
    }


def _costs(arm: ArmPlan) -> dict[str, Any]:
    return {
        "name": arm.name,
        "edits": arm.edits,
        "tuned": arm.tuned,
        "matching": arm.matching,
        "parameters": arm.parameters,
        "parameters_embedding": arm.parameters_embedding,
        "flops_per_token": arm.flops_per_token,
        "tokens": arm.tokens,
        "steps": arm.steps,
        "kv_bytes_per_token": arm.kv_bytes_per_token,
        "seconds": arm.seconds,
    }


def plan_json(
    outcome: Outcome, flops_per_second: float | None = None, utilisation: float = UTILISATION
) -> dict[str, Any]:
    """The document of `ablate plan --json`; `runs` are those of all sizes of a ladder, `arms` those of the largest.

    `estimated_seconds` is the training time of one run at a share `utilisation` of the device's matmul peak; null where
    `flops_per_second` is not given. Where the time of a step was measured it is that time, and `seconds` says it too.
    """

    def planned(arm: ArmPlan) -> dict[str, Any]:
        return {
            **_costs(arm),
            "flops": arm.flops,
            "estimated_seconds": _seconds(arm, flops_per_second, utilisation),
            "matched": arm.matched,
            "differs": arm.differs,
        }

    study = outcome.plan.study
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "seeds": list(study.seeds),
        "budget": study.budget.model_dump(exclude_none=True),
        "utilisation": utilisation,
        "runs": [
            {"digest": run.digest, "arm": run.arm, "seed": run.seed} for size in outcome.sizes for run in size.plan.runs
        ],
        "arms": [planned(arm) for arm in outcome.plan.arms],
        "ladder": [
            {"name": size.plan.study.rung, "arms": [planned(arm) for arm in size.plan.arms]}
            for size in outcome.sizes
            if size.plan.study.rung
        ],
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
                "–" if arm.kv_bytes_per_token is None else f"{arm.kv_bytes_per_token:,.0f}",
                "" if estimate is None else f"{_seconds_text(estimate)}{_percent(arm.differs.get('seconds', 0.0))}",
                *([edits] * len(solved)),
            )
        )
    return rows


def matched_line(plan: Plan) -> str:
    """`Matched: flops and parameters. In brackets: the difference from pre.`"""
    return f"Matched: {plan.study.budget.matched}. In brackets: the difference from {plan.study.baseline}."


def remarks(study: Study, tuned: bool) -> Iterator[str]:
    """What the table of a plan does not show: arms that hardly anyone wants so, and rounds whose number depends on
    results."""
    yield from (f"arm {arm.name}: {caution}" for arm in study.arms for caution in arm.model.cautions)
    tune, auto = study.tune, study.auto_seeds
    if tune is not None and not tuned:
        count = math.prod(len(axis.ends) for axis in tune.space.values()) if tune.is_grid else tune.count
        seeds = f"{tune.seeds} seed{'' if tune.seeds == 1 else 's'}"
        more = ", more where the best is at an edge," if tune.is_grid and tune.extend else ""
        yield (
            f"before that, every arm tunes {', '.join(tune.space)}: {count} settings × {seeds}{more}"
            f" at {100 * tune.fraction:g} % of the budget"
        )
    if auto is not None:
        yield f"seeds: from {auto.start} to {auto.cap}, as many as it takes to settle every arm"


def _seconds_text(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


def _percent(difference: float) -> str:
    return "" if abs(difference) < 0.05 else f" ({difference:+.1f} %)"
