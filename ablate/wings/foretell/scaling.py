"""`ablate.scale_up` and `ablate.fit`: predictions for a study's arms as edits of a published model at full size.

No model is built: costs by the roofline, and what fits in a memory, are arithmetic on its spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Generic, TypeVar

from pydantic import JsonValue

from ablate.api.public import Dtype
from ablate.api.study_argument import StudyLike
from ablate.machine.numerics import enforce, pick_device, restored
from ablate.readable import size_in_bytes
from ablate.study.arms import SECTIONS
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.training.execution import Count
from ablate.wings.foretell.roofline import Fit, PredictedPhase, Prediction, predict
from ablate.wings.foretell.roofline import fit as fit_in
from ablate.wings.foretell.this_machine import this_device
from evals.costs.devices import THIS, Device, DeviceError
from evals.costs.devices import device as device_named
from store.documents import JsonObject
from store.errors import ArgumentError
from zoo.errors import SpecError
from zoo.presets import Preset, preset
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


CONTEXTS = (1024, 8192, 32_768, 131_072)


@dataclass(frozen=True)
class ScaleUp:
    """A roofline's predictions for each arm at full size. `arms` are objects; `document` is plain data."""

    study: Study
    preset: Preset
    setting: PredictionSetting
    arms: list[ScaledArm[Prediction]]

    def document(self) -> JsonObject:
        """The document that `ablate plan --at … --json` prints."""
        return {
            "prediction": "roofline",
            **_asked(self.study, self.preset),
            "context": self.setting.context,
            "batch": self.setting.batch,
            "dtype": self.setting.dtype,
            "device": self.setting.device.model_dump(mode="json"),
            "arms": [arm_document(arm, prediction_document) for arm in self.arms],
        }


@dataclass(frozen=True)
class Fits:
    """The largest batch and context of each arm that fit in memory. `arms` are objects; `document` is plain data."""

    study: Study
    preset: Preset
    room: RoomToFill
    arms: list[ScaledArm[Fit]]

    def document(self) -> JsonObject:
        """The document that `ablate plan --at … --memory … --json` prints."""
        arms: list[JsonValue] = [arm_document(arm, fit_document) for arm in self.arms]
        return {"prediction": "fit", **_asked(self.study, self.preset), **asdict(self.room), "arms": arms}


def _asked(study: Study, preset: Preset) -> JsonObject:
    asked: JsonObject = {"study": study.name, "scale": study.scale, "question": study.question}
    return {**asked, "at": preset.name, "source": preset.source}


@restored()
def scale_up(
    study: StudyLike,
    at: str,
    *,
    device: str,
    context: Count = 8192,
    batch: Count = 1,
    dtype: Dtype = "bfloat16",
    scale: str | None = None,
    sets: Sets = (),
) -> ScaleUp:
    """Predict the cost of a study's arms as edits of a published model at full size. Nothing is built or run.

    Args:
        study, scale, sets: as in `ablate.run`.
        at: a preset of the zoo, or one of its sizes, such as `llama3-70b`.
        device: one of `evals/costs/devices`, such as `h200`; `this` measures this machine.
        context: tokens per row.
        batch: rows.
        dtype: dtype of weights, cache and matmuls.

    Returns:
        Parameters, bytes, prefill time and time per token of each arm, and what bounds them.

    Raises:
        StudyError: the study cannot be read.
        ArgumentError: there is no such preset or device.

    Example:
        >>> ablate.scale_up("gqa_groups", at="llama3-70b", device="h200", context=131072).document()["arms"]
    """
    read = load_study(study, scale, sets)
    with _named(at):
        model = preset(at)
        if device == THIS:
            kind = pick_device()
            enforce(kind, dtype)
            found = this_device(dtype, kind)
        else:
            found = device_named(device)
        setting = PredictionSetting(found, context, batch, dtype)
        of = partial(predict, device=setting.device, context=context, batch=batch, dtype=dtype)
        return ScaleUp(read, model, setting, at_full_size(read, model, of))


def fit(
    study: StudyLike,
    at: str,
    *,
    memory: str | float,
    contexts: Sequence[Count] = CONTEXTS,
    batch: Count = 1,
    dtype: Dtype = "bfloat16",
    scale: str | None = None,
    sets: Sets = (),
) -> Fits:
    """Find the largest batch and context that fit in memory, for a study's arms as edits of a published model.

    Args:
        study, scale, sets: as in `ablate.run`.
        at: a preset of the zoo, or one of its sizes, such as `llama3-70b`.
        memory: `"80GB"`, or a number of bytes.
        contexts: tokens per row for which to find the largest batch.
        batch: rows for which to find the largest context.
        dtype: dtype of weights and cache.

    Returns:
        The largest batch by context and the largest context of each arm.

    Raises:
        StudyError: the study cannot be read.
        ArgumentError: there is no such preset, or `memory` is not a size.

    Example:
        >>> ablate.fit("gqa_groups", at="llama3", memory="80GB").document()["arms"]
    """
    read = load_study(study, scale, sets)
    room = RoomToFill(size_in_bytes(memory, "memory"), contexts, batch, dtype)
    with _named(at):
        model = preset(at)
        of = partial(fit_in, memory_bytes=room.memory_bytes, contexts=contexts, batch=batch, dtype=dtype)
        return Fits(read, model, room, at_full_size(read, model, of))


@contextmanager
def _named(at: str) -> Iterator[None]:
    """Turn errors of the preset or the device into ArgumentError."""
    try:
        yield
    except SpecError as error:
        raise ArgumentError("at", error.reason, at) from error
    except DeviceError as error:
        raise ArgumentError("device", str(error)) from error
