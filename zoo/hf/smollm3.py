"""SmolLM 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.hf._common import turns
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import SLIDING, layer_types, layered, types_of, window_of
from zoo.hf._some_rope import SomeRoPE
from zoo.hf.llama import Llama
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class SmolLM3(SomeRoPE, Llama):
    """Llama without positions on some layers, and windows on some. Bakouch et al. 2025,
    https://huggingface.co/blog/smollm3."""

    model_types: ClassVar[tuple[str, ...]] = ("smollm3",)
    preference: ClassVar[int] = 1

    def spec(self, config: Config) -> SpecJson:
        config.ignore("no_rope_layer_interval", "max_window_layers")  # at most, they say what lists are by default
        types, rotary = types_of(config), config["no_rope_layers"]  # 1 where there is RoPE, despite the name
        if len(rotary) != len(types):
            raise UnsupportedError("no_rope_layers", f"has {len(rotary)} layers of {len(types)}")
        window = config["sliding_window"]
        if SLIDING in types and (window is None or not config["use_sliding_window"]):
            raise UnsupportedError("layer_types", f"{SLIDING} needs use_sliding_window and sliding_window")
        config.ignore("use_sliding_window", "sliding_window")
        kinds = [
            ["window"] * (kind == SLIDING) + ["nope"] * (not turned) for kind, turned in zip(types, rotary, strict=True)
        ]
        edits = {"nope": {"mixer.position": "nope"}, "window": {"mixer.window": window}}
        return {**super().spec(config), **layered(kinds, edits)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        window = window_of(spec)
        return {
            **super().config(spec),
            "no_rope_layers": [int(turns(layer)) for layer in spec.layers],
            "use_sliding_window": window is not None,
            "sliding_window": window,
            "layer_types": layer_types(spec),
        }
