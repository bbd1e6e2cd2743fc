"""Kimi Linear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation
from zoo.hf._fine_experts import EXPERTS
from zoo.hf._layers import FULL
from zoo.hf._pairs import Pair, reshaped, same
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.mla import MLA
from zoo.spec import ModelSpec

LINEAR = "linear_attention"
DENSE, SPARSE = "dense", "sparse"


class KimiLinear(DeepSeekV3):
    """Kimi Delta Attention in most layers and latent attention without positions in the others, with experts. Kimi
    Team 2025, arXiv:2510.26692."""

    model_types: ClassVar[tuple[str, ...]] = ("kimi_linear",)
    count_key: ClassVar[str] = "num_local_experts"

    def spec(self, config: Config) -> SpecJson:
        # What layer_types are by default, and sizes that follow from others.
        config.ignore("linear_attn_config", "max_position_embeddings", "head_dim")
        return {**super().spec(config), "tie_embeddings": False}  # whatever the config says of it

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        types = config["layer_types"]
        for kind in types:
            if kind not in (FULL, LINEAR):
                raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {LINEAR}")
        return [[LINEAR] * (kind == LINEAR) for kind in types]

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("first_k_dense_replace")  # it says what mlp_layer_types are by default
        return [[EXPERTS] * (kind == SPARSE) for kind in config["mlp_layer_types"]]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), LINEAR: {"mixer": self.delta(config)}}

    def position(self, config: Config) -> SpecJson:
        return {"kind": "nope"}

    def delta(self, config: Config) -> SpecJson:
        """The mixer of layers with a state."""
        return {
            "kind": "kda",
            "heads": config["linear_num_heads"],
            "head_dim": config["linear_head_dim"],
            "conv": config["linear_conv_kernel_dim"],
            "activation": plain_activation(config, "hidden_act"),
            "head_norm": {"kind": "rmsnorm", "eps": config["rms_norm_eps"]},
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [layer.mixer for layer in spec.layers]
        linear = {key: value for mixer in mixers for key, value in self.delta_config(mixer).items()}
        types = [FULL if isinstance(mixer, MLA) else LINEAR for mixer in mixers]
        return {**super().config(spec), **linear, "layer_types": types}

    def ffn_kinds_config(self, spec: ModelSpec) -> ConfigJson:
        kinds = [SPARSE if isinstance(layer.ffn, DeepSeekMoE) else DENSE for layer in spec.layers]
        return {"mlp_layer_types": kinds}

    def delta_config(self, mixer: object) -> ConfigJson:
        """Arguments of the config class that a layer with a state tells."""
        if not isinstance(mixer, KimiDeltaAttention):
            return {}
        sizes = {"linear_num_heads": mixer.heads, "linear_head_dim": mixer.features}
        return {**sizes, "linear_conv_kernel_dim": mixer.conv}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if isinstance(layer.mixer, MLA)), spec.layers[0])

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, MLA):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        mixer = expect(layer.mixer, KimiDeltaAttention, "mixer")
        for name in ("q", "k", "v", "o"):
            yield same(f"{ours}.{name}.weight", f"{theirs}.{name}_proj.weight")
        yield same(f"{ours}.strength.weight", f"{theirs}.b_proj.weight")
        channels = 3 * mixer.inner
        shapes = (channels, mixer.conv), (channels, 1, mixer.conv)
        yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", *shapes)
        yield same(f"{ours}.decay.step_bias", f"{theirs}.forget_gate.dt_bias")
        yield same(f"{ours}.head_norm.gain", f"{theirs}.o_norm.weight")
        yield from self.gate_weights(mixer, ours, theirs)

    def gate_weights(self, mixer: KimiDeltaAttention, ours: str, theirs: str) -> Iterator[Pair]:
        """Weights that produce the decay and the output gate."""
        shapes = (mixer.heads,), (1, 1, mixer.heads, 1)
        yield reshaped(f"{ours}.decay.log_rate", f"{theirs}.forget_gate.A_log", *shapes)
        for part, letter in (("down", "a"), ("up", "b")):
            yield same(f"{ours}.forget.{part}.weight", f"{theirs}.forget_gate.f_{letter}_proj.weight")
            yield same(f"{ours}.gate.{part}.weight", f"{theirs}.g_{letter}_proj.weight")
