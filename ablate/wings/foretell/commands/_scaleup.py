"""The output of `ablate plan --at`: a table of each arm's costs at a published model's full size, or, with `--memory`,
of the largest batch that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.readable import large
from ablate.wings.foretell.roofline import Fit, Prediction
from ablate.wings.foretell.scaling import RoomToFill, ScaledArm
from zoo.presets import Preset

if TYPE_CHECKING:
    from ablate import Fits, ScaleUp

HEADER = (
    "arm", "parameters", "weights", "cache", "prefill", "per token", "tokens/s", "bound by",
    "largest batch", "largest context", "note",
)  # fmt: skip


def row(arm: ScaledArm[Prediction]) -> Sequence[str]:
    found = arm.prediction
    if found is None:
        return (arm.name, *["–"] * (len(HEADER) - 2), arm.reason or "")
    active = "" if found.parameters_active == found.parameters else f" ({large(found.parameters_active)} active)"
    context = "any" if found.largest_context is None else f"{found.largest_context:,}"
    notes = [f"the same as {arm.same_as}"] if arm.same_as else []
    if found.devices > 1:
        notes.append(f"does not fit: {found.devices} devices or more")
    return (
        arm.name,
        large(found.parameters) + active,
        _gigabytes(found.weight_bytes),
        _gigabytes(found.cache_bytes),
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
        f"{setting.batch}, context {setting.context:,}. Nothing was run.",
        f"  compute {_percent(at.compute_share)} of {at.flops_per_second[setting.dtype] / 1e12:,.4g} TFLOP/s · memory "
        f"{_percent(at.bandwidth_share)} of {at.bandwidth_bytes_per_second / 1e12:,.4g} TB/s · overhead {overhead} · "
        f"{_percent(at.memory_share)} of {_gigabytes(at.memory_bytes)} usable",
        f"  device: {at.source}",
        f"  shares: {at.shares_source}",
        "  per token: one decoded token per row, with the whole context in the cache. Bound by: prefill, decoding.",
        *_encoding(model),
        "  If a model does not fit, its times are for one such device with enough memory.",
        f"  The first row is {model.name} as published; the others are {study.name}'s arms as edits of it, as "
        "written: the study's own base is not used, and no setting is adjusted to match.",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} µs"


def fit_header(room: RoomToFill) -> tuple[str, ...]:
    contexts = (f"batch at {context:,}" for context in room.contexts)
    return ("arm", "parameters", "weights", *contexts, f"context at batch {room.batch}", "note")


def fit_row(arm: ScaledArm[Fit]) -> Sequence[str]:
    found = arm.prediction
    if found is None:
        return (arm.name, arm.reason or "")
    notes = [f"the same as {arm.same_as}"] if arm.same_as else []
    if found.weight_bytes > found.usable_bytes:
        notes.append("the weights do not fit")
    return (
        arm.name,
        large(found.parameters),
        _gigabytes(found.weight_bytes),
        *("–" if batch is None else f"{batch:,}" for batch in found.batches.values()),
        "any" if found.largest_context is None else f"{found.largest_context:,}",
        "; ".join(notes),
    )


def fit_explained(found: Fits) -> list[str]:
    study, model, room = found.study, found.preset, found.room
    return [
        f"The largest batch at each context, and the largest context, that fit in {_gigabytes(room.memory_bytes)}: "
        f"{model.name} ({model.source}) and {study.name}'s arms as edits of it, {room.dtype}.",
        "  Arithmetic, nothing was run: weights and cache take at most 90 % of memory; the rest is for activations.",
        *_encoding(model),
        "  –: beyond the model's positions. any: the cache does not grow with the context.",
    ]


def _encoding(preset: Preset) -> list[str]:
    """A note on the meaning of a context for models with an encoder."""
    has = preset.spec.encoder is not None
    return ["  A context is the encoder's tokens; the decoder has generated as many."] * has


def _gigabytes(size: float) -> str:
    """A number of bytes in gigabytes: `16.1 GB`."""
    return f"{size / 1e9:,.3g} GB" if size < 1e11 else f"{size / 1e9:,.0f} GB"
