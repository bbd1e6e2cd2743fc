"""The output of `ablate plan --at`: a table of each arm's costs at a published model's full size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.commands._sizes import count, encoding, gigabytes
from ablate.planning.scaleup import ScaledArm
from evals.costs.roofline import Prediction

if TYPE_CHECKING:
    from ablate import ScaleUp

HEADER = (
    "arm", "parameters", "weights", "cache", "prefill", "per token", "tokens/s", "bound by",
    "largest batch", "largest context", "note",
)  # fmt: skip


def row(arm: ScaledArm[Prediction]) -> Sequence[str]:
    found = arm.prediction
    if found is None:
        return (arm.name, *["–"] * (len(HEADER) - 2), arm.reason or "")
    active = "" if found.parameters_active == found.parameters else f" ({count(found.parameters_active)} active)"
    context = "any" if found.largest_context is None else f"{found.largest_context:,}"
    notes = [f"the same as {arm.same_as}"] if arm.same_as else []
    if found.devices > 1:
        notes.append(f"does not fit: {found.devices} devices or more")
    return (
        arm.name,
        count(found.parameters) + active,
        gigabytes(found.weight_bytes),
        gigabytes(found.cache_bytes),
        _seconds(found.prefill.seconds),
        _seconds(found.decode.seconds),
        f"{found.tokens_per_second:,.3g}" if found.tokens_per_second < 100 else f"{found.tokens_per_second:,.0f}",
        f"{found.prefill.bound}, {found.decode.bound}",
        f"{found.largest_batch:,}",
        context,
        "; ".join(notes),
    )


def explained(found: ScaleUp) -> list[str]:
    study, model, setting = found.study, found.preset, found.setting
    at = setting.device
    overhead = f"{at.overhead_seconds_per_layer * 1e6:,.0f} µs per layer" if at.overhead_seconds_per_layer else "none"
    return [
        f"Predicted by a roofline: {model.name} ({model.source}) on {at.title}, {setting.dtype}, batch "
        f"{setting.batch}, context {setting.context:,}. None of these was run.",
        f"  compute {_percent(at.compute_share)} of {at.flops_per_second[setting.dtype] / 1e12:,.4g} TFLOP/s · memory "
        f"{_percent(at.bandwidth_share)} of {at.bandwidth_bytes_per_second / 1e12:,.4g} TB/s · overhead {overhead} · "
        f"{_percent(at.memory_share)} of {gigabytes(at.memory_bytes)} usable",
        f"  device: {at.source}",
        f"  shares: {at.shares_source}",
        "  per token: one decoded token per row, with the whole context in the cache. Bound by: prefill, decoding.",
        *encoding(model),
        "  Where it does not fit, times are those of one such device with enough memory.",
        f"  The first row is {model.name} as published, the others {study.name}'s arms as edits of it, as "
        "written: the study's own base is not used, and nothing is matched.",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} µs"
