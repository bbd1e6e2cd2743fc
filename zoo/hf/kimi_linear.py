"""Kimi Linear, and Ling 3.0 and Ring 3.0, which have its layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import CONV, Config, ConfigJson, Key, Keys, convolved, without
from zoo.hf._family import Pair, convolution, reshaped, same
from zoo.hf._layered import Hybrid, ListedExperts
from zoo.hf._layers import expect
from zoo.hf.deepseek import DeepSeekV3
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
        "linear_head_dim": Key("head_dim", resolved="key_features"),
        "linear_conv_kernel_dim": CONV,
    }

    def spec(self, config: Config) -> SpecJson:
        # A key that sets others (layer_types, sizes), and sizes that follow from others.
        config.ignore("linear_attn_config", "max_position_embeddings", "head_dim")
        return {**super().spec(config), "tie_embeddings": False}  # even if the config claims it

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
        yield from convolution(f"{ours}.conv", f"{theirs}.conv1d", 3 * mixer.inner, convolved(mixer.conv))
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


class BailingHybrid(KimiLinear):
    """Ling 3.0 and Ring 3.0: Kimi Delta Attention with a lower bound on its decay, and latent attention with RoPE and a
    gate for each head. Inclusion AI 2026, https://huggingface.co/inclusionAI/Ling-3.0-Flash."""

    model_types: ClassVar[tuple[str, ...]] = ("bailing_hybrid",)
    mixer_keys: ClassVar[Keys] = without(KimiLinear.mixer_keys, "q_lora_rank")
    mixer_fixed: ClassVar[SpecJson] = {**KimiLinear.mixer_fixed, "q_rank": None, "gate": "head"}

    def spec(self, config: Config) -> SpecJson:
        # A rank that the model does not use, defaults of layer_types and of the convolution, a loss in training.
        config.ignore("q_lora_rank", "layer_group_size", "short_conv_kernel_size", "mtp_loss_scaling_factor")
        return super().spec(config)

    def position(self, config: Config) -> SpecJson:
        return DeepSeekV3.position(self, config)

    def state(self, config: Config) -> SpecJson:
        floor, safe = float(config["kda_lower_bound"]), config["kda_safe_gate"]
        return {**super().state(config), "low_rank": False, "decay_floor": floor if safe else None}

    def state_config(self, mixer: Mixer) -> ConfigJson:
        delta = expect(mixer, KimiDeltaAttention, "mixer")
        floor = {} if delta.decay_floor is None else {"kda_lower_bound": delta.decay_floor}
        sizes = {"head_dim": delta.key_features, "short_conv_kernel_size": convolved(delta.conv)}
        return {**sizes, **floor, "kda_safe_gate": delta.decay_floor is not None}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = DeepSeekV3.position_config(self, layer)
        del arguments["rope_interleave"]
        return arguments

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        if isinstance(layer.mixer, MLA):
            yield same(f"{ours}.gate.project.weight", f"{theirs}.g_proj.weight")

    def gate_weights(self, mixer: KimiDeltaAttention, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.decay.log_rate", f"{theirs}.forget_gate.A_log")
        yield same(f"{ours}.forget.weight", f"{theirs}.forget_gate.f_proj.weight")
        yield same(f"{ours}.gate.weight", f"{theirs}.g_proj.weight")
