"""The output of `ablate plan --at … --memory`: a table of the largest batch that fits, for each arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.commands._sizes import count, encoding, gigabytes
from ablate.planning.scaleup import RoomToFill, ScaledArm
from evals.costs.fit import Fit

if TYPE_CHECKING:
    from ablate import Fits


def header(room: RoomToFill) -> tuple[str, ...]:
    contexts = (f"batch at {context:,}" for context in room.contexts)
    return ("arm", "parameters", "weights", *contexts, f"context at batch {room.batch}", "note")


def row(arm: ScaledArm[Fit]) -> Sequence[str]:
    found = arm.prediction
    if found is None:
        return (arm.name, arm.reason or "")
    notes = [f"the same as {arm.same_as}"] if arm.same_as else []
    if found.weight_bytes > found.usable_bytes:
        notes.append("the weights do not fit")
    return (
        arm.name,
        count(found.parameters),
        gigabytes(found.weight_bytes),
        *("–" if batch is None else f"{batch:,}" for batch in found.batches.values()),
        "any" if found.largest_context is None else f"{found.largest_context:,}",
        "; ".join(notes),
    )


def explained(found: Fits) -> list[str]:
    study, model, room = found.study, found.preset, found.room
    return [
        f"The largest batch at each context, and the largest context, that fit in {gigabytes(room.memory_bytes)}: "
        f"{model.name} ({model.source}) and {study.name}'s arms as edits of it, {room.dtype}.",
        "  Arithmetic, nothing was run: weights and cache take at most 90 % of memory; the rest is for activations.",
        *encoding(model),
        "  –: beyond the model's positions. Where the cache does not grow with the text, any context fits.",
    ]
