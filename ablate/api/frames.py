"""Results and summaries as flat polars frames: cells are numbers, text or lists of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import polars as pl

from reports.judge.findings.comparison import Judgement
from reports.judge.findings.study_summary import ArmSummary, EffectSummary, StudySummary
from reports.judge.reading.collect import RUNS
from reports.judge.statistics.estimates import Estimate
from reports.page.wording.summary_json import documents
from store.tables import Schema

INTERVALS = ("loss", "bits_per_byte", "accuracy", "excess", "peak_memory_bytes")
"""Means over seeds that have columns for their bounds, too."""

ARMS: Schema = {
    "arm": pl.String,
    "verdict": pl.String,
    **dict.fromkeys((f"{name}{end}" for name in INTERVALS for end in ("", "_low", "_high")), pl.Float64),
    "tokens_per_second": pl.Float64,
    "kv_bytes_per_token": pl.Float64,
    "parameters": pl.Int64,
    "parameters_embedding": pl.Int64,
    "flops_per_token": pl.Float64,
    "steps": pl.Int64,
    "tokens": pl.Int64,
    "flops": pl.Float64,
    "train_seconds": pl.Float64,
    **dict.fromkeys(("seeds", "stalled", "diverged", "missing"), pl.List(pl.Int64)),
    **dict.fromkeys(("edits", "tuned", "matching"), pl.String),
}
CONTRASTS: Schema = {
    "arm": pl.String,
    "baseline": pl.String,
    "verdict": pl.String,
    "unit": pl.String,
    **dict.fromkeys(("difference", "low", "high", "p", "p_holm", "p_equivalence"), pl.Float64),
    "pairs": pl.Int64,
    **dict.fromkeys(("detectable", "detectable_low", "detectable_high"), pl.Float64),
    "seeds_needed": pl.Int64,
    **dict.fromkeys(("speed_ratio", "memory_ratio", "kv_ratio"), pl.Float64),
    "kv_context": pl.Int64,
}
OF_ARMS = ("arm", "baseline", "seeds_needed", "kv_ratio", "kv_context")
EFFECTS: Schema = {
    "effect": pl.String,
    "factors": pl.List(pl.String),
    "aliases": pl.List(pl.String),
    **{name: kind for name, kind in CONTRASTS.items() if name not in OF_ARMS},
}
CHANGES: Schema = {
    **dict.fromkeys(("arm", "rung", "last", "axis", "verdict", "reason"), pl.String),
    **dict.fromkeys(("difference_at_rung", "difference_at_last", "change", "low", "high", "p"), pl.Float64),
    "seeds": pl.Int64,
}
SCORES: Schema = {
    "arm": pl.String,
    "task": pl.String,
    "metric": pl.String,
    **dict.fromkeys(("value", "stderr", "half_width", "chance"), pl.Float64),
    "higher_is_better": pl.Boolean,
    "seeds": pl.Int64,
}


def arms_frame(arms: Iterable[ArmSummary]) -> pl.DataFrame:
    return pl.DataFrame([_arm_row(arm) for arm in arms], schema=ARMS)


def _arm_row(arm: ArmSummary) -> dict[str, object]:
    # Edits by path are JSON: a column cannot hold maps whose values have different types.
    return {
        "arm": arm.name,
        "verdict": arm.verdict,
        **{name: value for each in INTERVALS for name, value in _interval(each, arm.means.get(each)).items()},
        "tokens_per_second": arm.training_speed,
        "kv_bytes_per_token": arm.planned.kv_bytes_per_token,
        "parameters": arm.planned.parameters,
        "parameters_embedding": arm.planned.parameters_embedding,
        "flops_per_token": float(arm.planned.flops_per_token),
        "steps": arm.planned.steps,
        "tokens": arm.planned.tokens,
        "flops": float(arm.planned.flops),
        "train_seconds": arm.train_seconds,
        "seeds": list(arm.seeds),
        "stalled": list(arm.stalled),
        "diverged": list(arm.diverged),
        "missing": list(arm.missing),
        **{name: json.dumps(dict(getattr(arm.planned, name))) for name in ("edits", "tuned", "matching")},
    }


def _interval(name: str, value: Estimate | None) -> dict[str, float | None]:
    if value is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}


def contrasts_frame(summary: StudySummary | None) -> pl.DataFrame:
    rows = [] if summary is None else [_contrast_row(each, summary.unit) for each in summary.judgements]
    return pl.DataFrame(rows, schema=CONTRASTS)


def _contrast_row(judged: Judgement, unit: str) -> dict[str, object]:
    found = judged.comparison
    difference = found.difference
    return {
        "arm": judged.arm,
        "baseline": judged.base,
        "verdict": judged.verdict,
        "unit": unit,
        "difference": difference.mean if difference else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "p": found.test.p if found.test else None,
        "p_holm": found.p_holm,
        "p_equivalence": found.p_equivalence,
        "pairs": len(found.seeds),
        "detectable": found.detectable.value if found.detectable else None,
        "detectable_low": found.detectable.low if found.detectable else None,
        "detectable_high": found.detectable.high if found.detectable else None,
        "seeds_needed": judged.seeds_needed,
        "speed_ratio": found.costs.training.mean if found.costs.training else None,
        "memory_ratio": found.costs.memory.mean if found.costs.memory else None,
        "kv_ratio": found.costs.kv_ratio,
        "kv_context": found.costs.kv_context,
    }


def effects_frame(summary: StudySummary | None) -> pl.DataFrame:
    rows = [] if summary is None else [_effect_row(each, summary.unit) for each in summary.effects]
    return pl.DataFrame(rows, schema=EFFECTS)


def _effect_row(found: EffectSummary, unit: str) -> dict[str, object]:
    own = _contrast_row(found.judgement, unit)
    names = {
        "effect": found.effect.name,
        "factors": list(found.effect.factors),
        "aliases": [" × ".join(alias) for alias in found.effect.aliases],
    }
    return {name: names[name] if name in names else own[name] for name in EFFECTS}


def changes_frame(summary: StudySummary | None) -> pl.DataFrame:
    found: Any = documents(summary).get("changes", []) if summary else []
    rows = [{**each, **dict(zip(("low", "high"), each["change_interval"] or (), strict=False))} for each in found]
    return pl.DataFrame(rows, schema=CHANGES)


def scores_frame(arms: Iterable[ArmSummary]) -> pl.DataFrame:
    rows = [
        {"arm": arm.name, **{name: getattr(score, name) for name in SCORES if name != "arm"}}
        for arm in arms
        for score in arm.scores
    ]
    return pl.DataFrame(rows, schema=SCORES)


def runs_frame(summary: StudySummary | None) -> pl.DataFrame:
    return pl.DataFrame(schema=RUNS) if summary is None else summary.runs
