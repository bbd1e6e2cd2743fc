"""MiMo-V2-Flash."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import QKV_BIAS, Key, Keys, without
from zoo.hf._layered import Layered
from zoo.hf._layers import SLIDING, types_of
from zoo.hf._rope import FRACTION
from zoo.hf._rope_by_layer import RopeByType
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class MiMoV2(RopeByType, ListedExperts):
    """Windows with sinks and twice the heads of keys and values on most layers, values smaller than keys and scaled,
    sigmoid experts. Xiaomi 2026, arXiv:2601.02780."""

    model_types: ClassVar[tuple[str, ...]] = ("mimo_v2_flash",)
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {
        **ListedExperts.mixer_keys,
        "v_head_dim": Key("v_dim", resolved="value_features"),
        "attention_bias": QKV_BIAS,
        "attention_value_scale": Key("value_scale", lambda scale: 1.0 if scale is None else float(scale)),
    }
    keeps_empty: ClassVar[bool] = False
    expert_fixed: ClassVar[SpecJson] = {**ListedExperts.expert_fixed, "shared_experts": 0}
    expert_keys: ClassVar[Keys] = without(ListedExperts.expert_keys, "n_shared_experts")

    def spec(self, config: Config) -> SpecJson:
        return Layered.spec(self, config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[SLIDING] * (kind == SLIDING) for kind in types_of(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        near = {
            "mixer.window": config["sliding_window"],
            "mixer.position": self.position_of(config, SLIDING),
            "mixer.kv_heads": 2 * config["num_key_value_heads"],
            "mixer.sinks": True,
        }
        return {**super().edits(config), SLIDING: near}

    def position_of(self, config: Config, kind: str) -> SpecJson:
        if "partial_rotary_factor" not in config["rope_parameters"].get(kind, {"partial_rotary_factor": 1.0}):
            raise UnsupportedError(FRACTION, f"say it for {kind}: without it, transformers takes 0.334")
        return super().position_of(config, kind)

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixer, arguments = attention(self.typical(spec)), super().config(spec)
        for parameters in arguments["rope_parameters"].values():
            parameters.setdefault("partial_rotary_factor", 1.0)
        kv_heads = mixer.sizes()[1]
        return {**arguments, "num_key_value_heads": kv_heads if mixer.window is None else kv_heads // 2}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if attention(layer).window is None), spec.layers[0])
