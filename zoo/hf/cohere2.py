"""Command A, Command R7B and all that share their config: windows with positions, and full attention without."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import FULL, pattern, sliding_types, window_config
from zoo.hf._some_rope import SomeRoPE
from zoo.hf.cohere import Cohere
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

UNREAD = (
    "_sliding_window_pattern",
    "order_of_interleaved_layers",
    "position_embedding_type",
    "rotary_pct",
    "sliding_window_pattern",
    "use_embedding_sharing",
    "use_gated_activation",
    "use_parallel_block",
    "use_parallel_embedding",
    "use_qk_norm",
)
"""Keys of published configs that transformers does not read, or only for what `layer_types` are by default."""


class Cohere2(SomeRoPE, Cohere):
    """Cohere 2025, arXiv:2504.00698."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere2",)
    heeds_qk_norm: ClassVar[bool] = False

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        types = sliding_types(config)
        full = {"mixer.position": "nope", "mixer.window": None}
        return {**super().spec(config), **pattern([FULL if kind == FULL else BASE for kind in types], {FULL: full})}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = {**super().config(spec), **window_config(spec)}
        arguments.pop("use_qk_norm")
        return arguments
