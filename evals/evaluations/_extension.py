"""A trained model with its rotary positions stretched: the same weights under another scaling of RoPE's frequencies."""

from __future__ import annotations

import json
from typing import Any

from zoo.checkpoint import assemble
from zoo.errors import SpecError
from zoo.model import Decoder
from zoo.settings.axis import variants
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec, parse

AXIS = "zoo.positions.scalings"


def extended(model: Decoder, scaling: str, factor: float, original_length: int) -> Decoder:
    """The model with `scaling` by `factor` in every layer with rotary positions, whatever scaling it had.

    Raises SpecError where no layer has them, or the scaling needs more than a factor and the original length.
    """
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    fields = variants(AXIS)[scaling].model_fields
    given = {"factor": float(factor), "original_length": original_length}
    settings = {"kind": scaling} | {name: value for name, value in given.items() if name in fields}
    return assemble(_stretched(model.spec, settings), weights)


def _stretched(spec: ModelSpec, scaling: SpecJson) -> ModelSpec:
    """Every layer's resolved block is named once, so that an edit of one kind of layer reaches all layers."""
    names: dict[str, str] = {}
    pattern = [names.setdefault(_block(layer, scaling), f"block{len(names) + 1}") for layer in spec.layers]
    if not any('"scaling"' in text for text in names):
        raise SpecError("", "no layer has rotary positions")
    blocks = {name: json.loads(text) for text, name in names.items()}
    whole = {"block": blocks.pop("block1"), "blocks": blocks, "first": [], "final_norm": spec.has_final_norm}
    return parse({**spec.dump(), **whole, "pattern": ["block" if name == "block1" else name for name in pattern]})


def _block(layer: Any, scaling: SpecJson) -> str:
    data = layer.model_dump(mode="json")
    position = data["mixer"].get("position") or {}
    if "scaling" in position:
        position["scaling"] = dict(scaling)
    return json.dumps(data, sort_keys=True)
