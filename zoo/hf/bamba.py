"""Bamba."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, Keys
from zoo.hf._layered import LINEAR
from zoo.hf._layers import FULL
from zoo.hf._mamba2_hybrid import Mamba2Hybrid
from zoo.hf._pairs import Pair, renamed
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Bamba(Mamba2Hybrid):
    """Mamba-2 in most layers, attention with partial RoPE in the others, and dense FFNs. IBM, Princeton and UIUC 2024,
    https://huggingface.co/ibm-fms/Bamba-9B."""

    model_types: ClassVar[tuple[str, ...]] = ("bamba",)
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {**Mamba2Hybrid.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**Mamba2Hybrid.ffn_keys, "mlp_bias": "bias"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_ff_layernorm",
    }

    def spec(self, config: Config) -> SpecJson:
        config.ignore("num_logits_to_keep")
        return {**super().spec(config), "z_loss": float(config["z_loss_coefficient"])}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        attends = config["attn_layer_indices"] or ()
        return [[LINEAR] * (i not in attends) for i in range(config["num_hidden_layers"])]

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        types = arguments.pop("layer_types")
        indices = [i for i, kind in enumerate(types) if kind == FULL]
        return {**arguments, "attn_layer_indices": indices, "z_loss_coefficient": spec.z_loss}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        return renamed(super().weights(spec), ".mlp.", ".feed_forward.")
