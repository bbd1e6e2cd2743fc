"""Qwen 2 to Qwen 3.5: dense models, models with experts, and hybrids with Gated DeltaNet in most layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.hf._config import BIAS, DELTANET, QKV, QKV_BIAS, Config, ConfigJson, Key, Keys, convolved, without
from zoo.hf._family import Pair, both, convolution, fused_layers, same
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import ExpertsEverywhere, Hybrid, NoExperts, QwenExperts, QwenSharedExperts
from zoo.hf._layers import SLIDING, attention, sliding_types, used_window_config, windows
from zoo.hf._rope import rope
from zoo.mixers import Mixer
from zoo.mixers._heads import GATE, NAMES
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Qwen2(LlamaLike):
    """Qwen 2 and 2.5: Llama with biases on queries, keys and values, and windows on some layers. Yang et al. 2024,
    arXiv:2407.10671."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2",)
    # They only set the default of layer_types.
    ignored: ClassVar[tuple[str, ...]] = ("use_sliding_window", "max_window_layers")
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": list(QKV)}

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **used_window_config(spec)}


class Qwen3(Qwen2):
    """Qwen 2 with a QK norm for each head, biases on all projections or none. Yang et al. 2025, arXiv:2505.09388."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**Qwen2.mixer_keys, "attention_bias": BIAS}


WINDOW = "window"


class Qwen2Moe(QwenSharedExperts):
    """Qwen 1.5 and Qwen 2 with experts: Qwen 2 with experts and a gated shared expert. Yang et al. 2024,
    arXiv:2407.10671."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2_moe",)
    mixer_keys: ClassVar[Keys] = {**QwenSharedExperts.mixer_keys, "qkv_bias": QKV_BIAS}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("use_sliding_window", "max_window_layers")  # they only set the default of layer_types
        return [[WINDOW] * (kind == SLIDING) for kind in sliding_types(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), WINDOW: {"mixer.window": config["sliding_window"]}}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **used_window_config(spec)}


class Qwen3Moe(QwenExperts):
    """Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder: Qwen 3's attention, a window on all layers or none, and experts.
    Yang et al. 2025, arXiv:2505.09388."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_moe",)
    # The window is null if it is not used.
    ignored: ClassVar[tuple[str, ...]] = ("use_sliding_window", "max_window_layers")
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS, "sliding_window": "window"}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_sliding_window": attention(layer).window is not None}


class Qwen3Next(Hybrid, QwenSharedExperts):
    """Gated DeltaNet in most layers and gated attention in the others, with experts. Qwen Team 2025,
    https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_next",)
    qk_norm: ClassVar[SpecJson | None] = {}
    partial_rotary: ClassVar[bool] = True
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {
        **QwenSharedExperts.mixer_keys,
        "attention_bias": Key("bias", lambda biased: [*NAMES, GATE] if biased else False, bool),
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "gate": "feature"}
    state_class: ClassVar[type[Mixer]] = GatedDeltaNet
    state_fixed: ClassVar[SpecJson] = {"kind": "gated_deltanet"}
    state_keys: ClassVar[Keys] = DELTANET

    def state(self, config: Config) -> SpecJson:
        return {**super().state(config), "head_norm": {"kind": "rmsnorm", "eps": config["rms_norm_eps"]}}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, GatedDeltaNet):
            theirs = theirs.removesuffix("self_attn") + "linear_attn"
            yield from self.deltanet_inputs(layer.mixer, ours, theirs)
            yield from deltanet_weights(layer.mixer, ours, theirs)
            return
        mixer = attention(layer)
        heads, _, head_dim = mixer.sizes()
        parts, sizes = ("q", "gate.project"), [head_dim] * 2
        yield from fused_layers(ours, parts, f"{theirs}.q_proj", sizes, heads, bias=bool(mixer.bias))
        for name in ("k", "v", "o"):
            yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=name in mixer.bias)
        for name in ("q_norm", "k_norm"):
            yield same(f"{ours}.{name}.gain", f"{theirs}.{name}.weight")

    def deltanet_inputs(self, mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
        """Fused input projections: query, key, values and gates of each key head in turn."""
        k_heads, head_dim, v_dim = mixer.sizes()
        per_key = mixer.heads // k_heads
        sizes = [head_dim, head_dim, per_key * v_dim, per_key * v_dim]
        yield from fused_layers(ours, ("q", "k", "v", "gate"), f"{theirs}.in_proj_qkvz", sizes, k_heads)
        yield from fused_layers(ours, ("strength", "forget"), f"{theirs}.in_proj_ba", [per_key] * 2, k_heads)


def deltanet_weights(
    mixer: GatedDeltaNet, ours: str, theirs: str, norm: str = "norm", output: str = "out_proj"
) -> Iterator[Pair]:
    """All weights but the input projections. norm, output: transformers' names of the norm and output projection."""
    yield from convolution(f"{ours}.conv", f"{theirs}.conv1d", sum(mixer.widths), convolved(mixer.conv))
    yield same(f"{ours}.decay.log_rate", f"{theirs}.A_log")
    yield same(f"{ours}.decay.step_bias", f"{theirs}.dt_bias")
    yield same(f"{ours}.head_norm.gain", f"{theirs}.{norm}.weight")
    yield same(f"{ours}.o.weight", f"{theirs}.{output}.weight")


class Qwen35(NoExperts, Qwen3Next):
    """Qwen3-Next's mixers with dense FFNs. Qwen Team 2026, https://huggingface.co/Qwen/Qwen3.5-27B."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_5_text",)
    preference: ClassVar[int] = 3

    def position(self, config: Config) -> SpecJson:
        # For positions with three axes, which are equal in text.
        unread = ("mrope_section", "mrope_interleaved")
        return rope(config, self.head_dim(config), partial=True, unread=unread)

    def deltanet_inputs(self, mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
        k_heads, head_dim, v_dim = mixer.sizes()
        sizes = [k_heads * head_dim, k_heads * head_dim, mixer.heads * v_dim]
        yield from fused_layers(ours, "qkv", f"{theirs}.in_proj_qkv", sizes)
        for name, letter in (("gate", "z"), ("strength", "b"), ("forget", "a")):
            yield same(f"{ours}.{name}.weight", f"{theirs}.in_proj_{letter}.weight")


class Qwen35Moe(ExpertsEverywhere, Qwen35):
    """Qwen 3.5 with experts and a shared expert in every layer. Qwen Team 2026,
    https://huggingface.co/Qwen/Qwen3.5-35B-A3B."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_5_moe_text",)
    experts_class: ClassVar[type[MoE] | tuple[()]] = QwenSharedExperts.experts_class
    expert_fixed: ClassVar[SpecJson] = {**QwenSharedExperts.expert_fixed, "softmax_over": "chosen"}
    expert_keys: ClassVar[Keys] = without(QwenSharedExperts.expert_keys, "norm_topk_prob")

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)
