"""EXAONE 4.0 and K-EXAONE."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson, Keys, without
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import ListedExperts
from zoo.hf._layers import FULL, SLIDING, layer_types, pattern, sliding_types, turns, window_of
from zoo.hf._rope_by_layer import NearRoPE, SomeRoPE
from zoo.hf.olmo import Olmo2
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Exaone4(SomeRoPE, Olmo2):
    """EXAONE 4.0: x + norm(f(x)), with a QK norm for each head; if some layers have windows, the others have no
    positions. LG AI Research 2025, arXiv:2507.11407."""

    model_types: ClassVar[tuple[str, ...]] = ("exaone4",)
    ignored: ClassVar[tuple[str, ...]] = ("sliding_window_pattern",)  # it only sets the default of layer_types
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = LlamaLike.mixer_keys

    def spec(self, config: Config) -> SpecJson:
        types, window = sliding_types(config), config["sliding_window"]
        far = {"mixer.window": None, "mixer.position": "nope"} if window is not None else {}
        names = [BASE if kind == SLIDING or window is None else FULL for kind in types]
        return {**super().spec(config), **pattern(names, {FULL: far})}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        window, far = window_of(spec), not all(map(turns, spec.layers))
        # If sliding_window is set, full attention has no positions: NoPE needs it even if no layer has a window.
        own = {"sliding_window": window or (1 if far else None), "layer_types": layer_types(spec)}
        return {**super().config(spec), **own}


class ExaoneMoe(NearRoPE, ListedExperts):
    """K-EXAONE: a QK norm for each head, windows with RoPE, full attention without positions, DeepSeek-V3's experts.
    LG AI Research 2026, arXiv:2601.01739."""

    model_types: ClassVar[tuple[str, ...]] = ("exaone_moe",)
    ignored: ClassVar[tuple[str, ...]] = ("sliding_window_pattern",)  # it only sets the default of layer_types
    qk_norm: ClassVar[SpecJson | None] = {}
    expert_keys: ClassVar[Keys] = {
        **without(ListedExperts.expert_keys, "n_routed_experts", "n_shared_experts"),
        "num_experts": "experts",
        "num_shared_experts": "shared_experts",
    }
