"""Bamba, and the base of models with Mamba-2 in some layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, CONV, Key, Keys
from zoo.hf._layered import LINEAR, Hybrid
from zoo.hf._layers import FULL
from zoo.hf._pairs import Pair
from zoo.hf.mamba import limits, limits_config, mamba2_weights
from zoo.mixers import Mixer
from zoo.mixers.mamba2 import Mamba2
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Mamba2Hybrid(Hybrid):
    """Mamba-2 in layers of linear attention."""

    has_head_dim: ClassVar[bool] = False
    state_class: ClassVar[type[Mixer]] = Mamba2
    state_fixed: ClassVar[SpecJson] = {"kind": "mamba2"}
    state_keys: ClassVar[Keys] = {
        "mamba_n_heads": "heads",
        "mamba_d_head": Key("head_dim", resolved="features"),
        "mamba_d_state": "state",
        "mamba_n_groups": "groups",
        "mamba_d_conv": CONV,
        "mamba_conv_bias": "conv_bias",
        "mamba_proj_bias": "bias",
        "mamba_chunk_size": "chunk",
    }

    def state(self, config: Config) -> SpecJson:
        config.ignore("mamba_expand")  # it follows from the heads
        return {**super().state(config), "head_norm": self.norm(config), **limits(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        mixer = next((layer.mixer for layer in spec.layers if isinstance(layer.mixer, Mamba2)), None)
        return arguments if mixer is None else {**arguments, "mamba_expand": mixer.widths[0] // spec.d_model}

    def state_config(self, mixer: Mixer) -> ConfigJson:
        return {**super().state_config(mixer), **limits_config(expect(mixer, Mamba2, "mixer"))}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, Mamba2):
            return mamba2_weights(layer.mixer, ours, theirs.removesuffix("self_attn") + "mamba")
        return super().mixer_weights(layer, ours, theirs)


class Bamba(Mamba2Hybrid):
    """Mamba-2 in most layers, attention with partial RoPE in the others, and dense FFNs. IBM, Princeton and UIUC 2024,
    https://huggingface.co/ibm-fms/Bamba-9B."""

    model_types: ClassVar[tuple[str, ...]] = ("bamba",)
    ignored: ClassVar[tuple[str, ...]] = ("num_logits_to_keep",)
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {**Mamba2Hybrid.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**Mamba2Hybrid.ffn_keys, "mlp_bias": "bias"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_ff_layernorm",
    }
    ffn_name: ClassVar[str] = "feed_forward"

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), "z_loss": float(config["z_loss_coefficient"])}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        attends = config["attn_layer_indices"] or ()
        return [[LINEAR] * (i not in attends) for i in range(config["num_hidden_layers"])]

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        types = arguments.pop("layer_types")
        indices = [i for i, kind in enumerate(types) if kind == FULL]
        return {**arguments, "attn_layer_indices": indices, "z_loss_coefficient": spec.z_loss}
