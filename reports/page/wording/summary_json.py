"""A study's findings as JSON, printed by `ablate run --json`. Missing numbers are null."""

from __future__ import annotations

from pydantic import JsonValue

from reports.judge.findings.comparison import ArmCosts, Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.statistics.estimates import Estimate, Interval, ends_as_json
from reports.page.sections import sections
from reports.page.wording.arm_words import standing
from store.documents import JsonObject
from store.extensions import modules_of


def documents(summary: StudySummary) -> JsonObject:
    more: dict[str, JsonObject] = {}
    for module in modules_of("reports.page.wording.answers"):
        more |= module.in_json(summary)
    computes: dict[str, JsonObject] = {
        arm: {"factor": found.value, "interval": ends_as_json(found.low, found.high)}
        for arm, found in summary.effective_compute.items()
    }
    return {
        "references": _references(summary),
        "arms": [
            {
                **_arm(arm),
                "effective_compute": computes.get(arm.name),
                "standing": standing(summary, arm.name) or None,
                **more.get(arm.name, {}),
            }
            for arm in summary.arms
        ],
        "effects": [
            {
                "factors": list(each.effect.factors),
                "aliases": [list(alias) for alias in each.effect.aliases],
                "verdict": each.verdict,
                **_difference(each.comparison),
                **more.get(each.effect.name, {}),
            }
            for each in summary.effects
        ],
        "caveats": [{"text": each.text, "arm": each.arm} for each in summary.study.caveats],
        **{key: value for each in sections().values() for key, value in each.in_json(summary).items()},
    }


def _references(summary: StudySummary) -> JsonObject | None:
    """Losses of simple models on the baseline's text: of as many tokens as a run reads, with `bits_per_byte`, and in
    `whole` of all training tokens. Null if unknown."""
    known = summary.references.get(summary.baseline)
    if known is None:
        return None
    read, whole = ({**each.model_dump(), "bits_per_byte": each.bits_per_byte} for each in (known.read, known.whole))
    return {**read, "whole": whole}


def _arm(arm: ArmSummary) -> JsonObject:
    scores: dict[str, JsonObject] = {}
    for score in arm.scores:
        known = {"value": score.value, "stderr": score.stderr, "half_width": score.half_width}
        scores.setdefault(score.task, {})[score.metric] = {**known}
    differences: dict[str, JsonObject] = {}
    for found in arm.items:
        differences.setdefault(found.task, {})[found.metric] = found.document()
    return {
        "name": arm.name,
        "edits": dict(arm.planned.edits),
        "tuned": dict(arm.planned.tuned),
        "matching": dict(arm.planned.matching),
        "seeds": list(arm.seeds),
        "stalled": list(arm.stalled),
        "diverged": list(arm.diverged),
        "loss": _mean(arm.loss),
        "loss_interval": _interval(arm.loss),
        "bits_per_byte": _mean(arm.bits_per_byte),
        "accuracy": _mean(arm.accuracy),
        "accuracy_interval": _interval(arm.accuracy),
        "excess": _mean(arm.excess),
        "tokens_per_second": arm.training_speed,
        "peak_memory_bytes": _mean(arm.means.get("peak_memory_bytes")),
        "costs": _costs(arm.comparison.costs if arm.comparison else None),
        "kv_bytes_per_token": arm.planned.kv_bytes_per_token,
        "parameters": arm.planned.parameters,
        "flops_per_token": arm.planned.flops_per_token,
        "evals": {**scores},
        "verdict": arm.verdict,
        **_difference(arm.comparison),
        "detectable_interval": _interval(arm.comparison.detectable if arm.comparison else None),
        "seeds_needed": arm.seeds_needed,
        "eval_differences": {**differences},
    }


def _costs(found: ArmCosts | None) -> JsonObject | None:
    """Cost ratios to the baseline; speeds were measured in alternation with it."""
    if found is None:
        return None
    ratios = {"training_speed": found.training, "decoding_speed": found.decoding, "peak_memory": found.memory}
    return {
        **{
            name: None if each is None else {"ratio": each.mean, "interval": ends_as_json(each.low, each.high)}
            for name, each in ratios.items()
        },
        "unmeasured": found.unmeasured,
    }


def _difference(found: Comparison | None) -> JsonObject:
    return {
        "difference": _mean(found.difference if found else None),
        "difference_interval": _interval(found.difference if found else None),
        "p": found.p_holm if found else None,
        "detectable": found.detectable.value if found and found.detectable else None,
    }


def _mean(value: Estimate | None) -> float | None:
    return None if value is None else value.mean


def _interval(value: Estimate | Interval | None) -> list[JsonValue] | None:
    return None if value is None else ends_as_json(value.low, value.high)
