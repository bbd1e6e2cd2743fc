"""Kimi Linear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import CONV, Key, Keys, convolved, without
from zoo.hf._layered import Hybrid
from zoo.hf._pairs import Pair, reshaped, same
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.mixers import Mixer
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.mla import MLA
from zoo.settings.edits import SpecJson


class KimiLinear(Hybrid, ListedExperts, DeepSeekV3):
    """Kimi Delta Attention in most layers and latent attention without positions in the others, with experts. Kimi
    Team 2025, arXiv:2510.26692."""

    model_types: ClassVar[tuple[str, ...]] = ("kimi_linear",)
    expert_keys: ClassVar[Keys] = {
        **without(DeepSeekV3.expert_keys, "n_routed_experts"),
        "num_local_experts": "experts",
    }
    state_class: ClassVar[type[Mixer]] = KimiDeltaAttention
    state_fixed: ClassVar[SpecJson] = {"kind": "kda"}
    state_keys: ClassVar[Keys] = {
        "linear_num_heads": "heads",
        "linear_head_dim": Key("head_dim", resolved="features"),
        "linear_conv_kernel_dim": CONV,
    }

    def spec(self, config: Config) -> SpecJson:
        # What layer_types are by default, and sizes that follow from others.
        config.ignore("linear_attn_config", "max_position_embeddings", "head_dim")
        return {**super().spec(config), "tie_embeddings": False}  # whatever the config says of it

    def position(self, config: Config) -> SpecJson:
        return {"kind": "nope"}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def state(self, config: Config) -> SpecJson:
        return {**super().state(config), "head_norm": self.norm(config)}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, MLA):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        mixer = expect(layer.mixer, KimiDeltaAttention, "mixer")
        for name in ("q", "k", "v", "o"):
            yield same(f"{ours}.{name}.weight", f"{theirs}.{name}_proj.weight")
        yield same(f"{ours}.strength.weight", f"{theirs}.b_proj.weight")
        channels, width = 3 * mixer.inner, convolved(mixer.conv)
        shapes = (channels, width), (channels, 1, width)
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
