"""Scale-up on paper: a study's arms as edits of a published full-size model, with roofline predictions of their costs.

No model is built: all predictions are arithmetic on its spec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from pydantic import JsonValue

from ablate.study.arms import SECTIONS
from ablate.study.study import Study
from ablate.wings.foretell.fit import Fit
from ablate.wings.foretell.roofline import PredictedPhase, Prediction
from evals.costs.devices import Device
from store.documents import JsonObject
from zoo.errors import SpecError
from zoo.presets import Preset
from zoo.settings.edits import expand, merge
from zoo.spec import ModelSpec, parse

T = TypeVar("T")


@dataclass(frozen=True)
class PredictionSetting:
    """Conditions of a prediction. context: in tokens. dtype: its name."""

    device: Device
    context: int
    batch: int
    dtype: str


@dataclass(frozen=True)
class RoomToFill:
    """A memory to fill: find the largest batch at each of `contexts`, and the largest context at `batch` rows."""

    memory_bytes: float
    contexts: Sequence[int]
    batch: int
    dtype: str


@dataclass(frozen=True)
class ScaledArm(Generic[T]):
    """An arm's edits applied to the full-size model. If `prediction` is None, `reason` says why."""

    name: str
    edits: JsonObject
    prediction: T | None
    reason: str | None = None
    same_as: str | None = None
    """Name of an earlier row with the same model."""


def at_full_size(study: Study, preset: Preset, of: Callable[[ModelSpec], T]) -> list[ScaledArm[T]]:
    """The preset as published, then each of the study's other arms as edits of it.

    The study's own base is dropped, except for its named blocks that an arm uses: their edits of the base block become
    edits of the preset's. If the preset has a block of the same name, the preset's wins.

    of: the prediction for a model. Raises SpecError if too little of the preset is public to build it.
    """
    model, named = expand(preset.model), study.arms[0].model.blocks
    seen: dict[str, str] = {}

    def row(name: str, edits: JsonObject) -> ScaledArm[T]:
        nested, own = expand(edits), model.get("blocks", {})
        used = {*nested.get("pattern", ()), *nested.get("first", ()), *nested.get("blocks", {})}
        brought = {name: block for name, block in named.items() if name in used and name not in own}
        try:
            spec = parse(merge(merge(model, {"blocks": brought}), nested))
            found = of(spec)
        except SpecError as error:
            return ScaledArm(name, edits, None, str(error))
        twin = seen.setdefault(spec.digest, name)
        return ScaledArm(name, edits, found, same_as=None if twin == name else twin)

    rows = [row(preset.name, {})]
    for arm in study.arms[1:]:
        rows.append(row(arm.name, {p: value for p, value in arm.edits.items() if p.partition(".")[0] not in SECTIONS}))
    return rows


def arm_document(arm: ScaledArm[T], of: Callable[[T], JsonObject]) -> JsonObject:
    document: JsonObject = {"name": arm.name, "edits": arm.edits}
    if arm.prediction is None:
        return {**document, "reason": arm.reason}
    return {**document, "same_as": arm.same_as, **of(arm.prediction)}


def fit_document(found: Fit) -> JsonObject:
    batches: list[JsonValue] = [{"context": context, "batch": batch} for context, batch in found.batches.items()]
    return {
        "parameters": found.parameters,
        "weight_bytes": found.weight_bytes,
        "usable_bytes": found.usable_bytes,
        "largest_batch": batches,
        "largest_context": found.largest_context,
    }


def prediction_document(found: Prediction) -> JsonObject:
    return {
        "parameters": found.parameters,
        "parameters_active": found.parameters_active,
        "weight_bytes": found.weight_bytes,
        "cache_bytes": found.cache_bytes,
        "prefill": _phase_document(found.prefill),
        "decode": {**_phase_document(found.decode), "tokens_per_second": found.tokens_per_second},
        "fits": found.devices == 1,
        "devices": found.devices,
        "largest_batch": found.largest_batch,
        "largest_context": found.largest_context,
    }


def _phase_document(phase: PredictedPhase) -> JsonObject:
    return {**asdict(phase), "seconds": phase.seconds, "bound": phase.bound}
