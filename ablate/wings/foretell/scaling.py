"""`ablate.scale_up` and `ablate.fit`: predictions for a study's arms at a published model's full size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from pydantic import JsonValue

from ablate.api.public import Dtype
from ablate.api.study_argument import StudyLike
from ablate.machine.numerics import enforce, pick_device, restored
from ablate.readable import size_in_bytes
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.training.execution import Count
from ablate.wings.foretell.fit import Fit
from ablate.wings.foretell.fit import fit as fit_in
from ablate.wings.foretell.roofline import Prediction, predict
from ablate.wings.foretell.scaleup import (
    PredictionSetting,
    RoomToFill,
    ScaledArm,
    arm_document,
    at_full_size,
    fit_document,
    prediction_document,
)
from ablate.wings.foretell.this_machine import this_device
from evals.costs.devices import THIS, Device, DeviceError
from evals.costs.devices import device as device_named
from store.documents import JsonObject
from store.errors import ArgumentError
from zoo.errors import SpecError
from zoo.presets import Preset, preset

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
        setting = PredictionSetting(_device(device, dtype), context, batch, dtype)
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


def _device(name: str, dtype: str) -> Device:
    if name != THIS:
        return device_named(name)
    kind = pick_device()
    enforce(kind, dtype)
    return this_device(dtype, kind)
