"""Ling 3.0 and Ring 3.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys, convolved, without
from zoo.hf._pairs import Pair, same
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.hf.kimi_linear import KimiLinear
from zoo.mixers import Mixer
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.mla import MLA
from zoo.settings.edits import SpecJson


class BailingHybrid(KimiLinear):
    """Kimi Delta Attention with a floor under its decay, and latent attention with RoPE and a gate for each head.
    Inclusion AI 2026, https://huggingface.co/inclusionAI/Ling-3.0-Flash."""

    model_types: ClassVar[tuple[str, ...]] = ("bailing_hybrid",)
    mixer_keys: ClassVar[Keys] = without(KimiLinear.mixer_keys, "q_lora_rank")
    mixer_fixed: ClassVar[SpecJson] = {**KimiLinear.mixer_fixed, "q_rank": None, "gate": "head"}

    def spec(self, config: Config) -> SpecJson:
        # By default they say what lists are, how many heads there are, and how wide.
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
        sizes = {"head_dim": delta.features, "short_conv_kernel_size": convolved(delta.conv)}
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
