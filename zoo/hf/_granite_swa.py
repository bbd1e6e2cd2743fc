"""Windows, sinks and bases of RoPE by layer, on Granite's attention."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import SLIDING, layered, sliding_types, window_config
from zoo.hf._some_rope import SomeRoPE
from zoo.hf.granite import Granite
from zoo.positions.rope import RoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

BASES = "layer_rope_theta"


class SlidingGranite(SomeRoPE, Granite):
    """Granite with a sink for each head, windows on some layers, and a base of RoPE for each layer: 0 for NoPE."""

    preference: ClassVar[int] = 4
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "sinks": True}

    def spec(self, config: Config) -> SpecJson:
        spec, types, bases = super().spec(config), sliding_types(config), config[BASES]
        position = spec["block"]["mixer"]["position"]
        edits: dict[str, SpecJson] = {SLIDING: {"mixer.window": config["sliding_window"]}}
        for base in bases:
            edits[_name(base)] = {"mixer.position": {**position, "base": float(base)} if base else "nope"}
        kinds = [[SLIDING] * (kind == SLIDING) + [_name(base)] for kind, base in zip(types, bases, strict=True)]
        return {**spec, **layered(kinds, edits)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        positions = [attention(layer).position for layer in spec.layers]
        bases = [position.base if isinstance(position, RoPE) else 0 for position in positions]
        return {**super().config(spec), **window_config(spec), BASES: bases}


def _name(base: float) -> str:
    """Name of the edit for layers with this base."""
    return f"base_{base}".replace(".", "_") if base else "nope"
