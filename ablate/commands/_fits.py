"""`ablate plan --at … --memory`: how much of each arm's cache a memory holds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ablate.cli import InputError
from ablate.commands import print_json, print_table
from ablate.commands._sizes import DEFAULT_DTYPE, count, encoding, gigabytes
from ablate.planning.scaleup import Room, ScaledArm, fits, fits_json
from ablate.study.search_constraints import NUMBER, UNITS
from ablate.study.study import Study
from evals.costs.fit import Fit
from zoo.presets import Preset

CONTEXTS = (1024, 8192, 32_768, 131_072)


def show_fits(options: argparse.Namespace, study: Study, model: Preset) -> int:
    """Print the largest batch by context. Raises InputError, and SpecError where the preset cannot be built."""
    if options.device is not None:
        raise InputError(f"--memory takes no --device: what fits does not depend on {options.device}'s speed")
    contexts = CONTEXTS if options.context is None else (options.context,)
    room = Room(_bytes(options.memory), contexts, options.batch or 1, options.dtype or DEFAULT_DTYPE)
    arms = fits(study, model, room)
    if options.json:
        print_json(fits_json(study, model, room, arms))
        return 0
    at_batch = f"context at batch {room.batch}"
    print(study.question)
    print_table(
        [("arm", "parameters", "weights", *(f"batch at {c:,}" for c in contexts), at_batch, "note"), *map(_row, arms)]
    )
    print("\n".join(_explained(study, model, room)))
    return 0


def _bytes(text: str) -> float:
    """`80GB`, `24 GiB`."""
    found = NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in UNITS or float(found[1]) == 0:
        raise InputError(f"--memory {text}: not a size such as 80GB or 24GiB")
    return float(found[1]) * UNITS[found[2]]


def _row(arm: ScaledArm[Fit]) -> Sequence[str]:
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


def _explained(study: Study, model: Preset, room: Room) -> list[str]:
    return [
        f"The largest batch at each context, and the largest context, that fit {gigabytes(room.memory_bytes)}: "
        f"{model.name} ({model.source}) and {study.name}'s arms as edits of it, {room.dtype}.",
        "  Arithmetic: weights and cache take 90 % of the memory at most; the rest is for activations. None was run.",
        *encoding(model),
        "  –: positions end before. Where the cache does not grow with the text, any context fits.",
    ]
