"""Qwen3-Next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation
from zoo.hf._layers import FULL
from zoo.hf._pairs import Pair, both, fused, reshaped, same
from zoo.hf._qwen_experts import QwenSharedExperts
from zoo.mixers import Mixer
from zoo.mixers._projections import GATE, NAMES
from zoo.mixers.attention import Attention
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.spec import ModelSpec

LINEAR = "linear_attention"


class Qwen3Next(QwenSharedExperts):
    """Gated DeltaNet in most layers and gated attention in the others, with experts. Qwen Team 2025,
    https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_next",)
    partial_rotary: ClassVar[bool] = True

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        types = config["layer_types"]
        for kind in types:
            if kind not in (FULL, LINEAR):
                raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {LINEAR}")
        return [[LINEAR] * (kind == LINEAR) for kind in types]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), **self.linear_edits(config)}

    def linear_edits(self, config: Config) -> dict[str, SpecJson]:
        return {LINEAR: {"mixer": self._deltanet(config)}}

    def norm(self, config: Config) -> SpecJson:
        return {**super().norm(config), "unit_offset": True}

    def mixer(self, config: Config) -> SpecJson:
        own = {
            "qk_norm": self.norm(config),
            "gate": "feature",
            "bias": [*NAMES, GATE] if config["attention_bias"] else False,
        }
        return {**super().mixer(config), **own}

    def _deltanet(self, config: Config) -> SpecJson:
        return {
            "kind": "gated_deltanet",
            "heads": config["linear_num_value_heads"],
            "k_heads": config["linear_num_key_heads"],
            "head_dim": config["linear_key_head_dim"],
            "v_dim": config["linear_value_head_dim"],
            "conv": config["linear_conv_kernel_dim"],
            "activation": plain_activation(config, "hidden_act"),
            "head_norm": {"kind": "rmsnorm", "eps": config["rms_norm_eps"]},
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [layer.mixer for layer in spec.layers]
        types = [FULL if isinstance(mixer, Attention) else LINEAR for mixer in mixers]
        linear = {key: value for mixer in mixers for key, value in _deltanet_config(mixer).items()}
        return {**super().config(spec), **linear, "layer_types": types}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if isinstance(layer.mixer, Attention)), spec.layers[0])

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, GatedDeltaNet):
            theirs = theirs.removesuffix("self_attn") + "linear_attn"
            yield from self.deltanet_inputs(layer.mixer, ours, theirs)
            yield from _deltanet_weights(layer.mixer, ours, theirs)
            return
        mixer = attention(layer)
        heads, _, head_dim = mixer.sizes()
        for kind in ["weight", "bias"] if mixer.bias else ["weight"]:
            parts = [f"{ours}.q.{kind}", f"{ours}.gate.project.{kind}"]
            yield fused(parts, f"{theirs}.q_proj.{kind}", [head_dim] * 2, heads)
        for name in ("k", "v", "o"):
            yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=name in mixer.bias)
        for name in ("q_norm", "k_norm"):
            yield same(f"{ours}.{name}.gain", f"{theirs}.{name}.weight")

    def deltanet_inputs(self, mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
        """Projections that hold query, key, values and gates of one key head after the other."""
        k_heads, head_dim, v_dim = mixer.sizes()
        per_key = mixer.heads // k_heads
        wide = [f"{ours}.{name}.weight" for name in ("q", "k", "v", "gate")]
        sizes = [head_dim, head_dim, per_key * v_dim, per_key * v_dim]
        yield fused(wide, f"{theirs}.in_proj_qkvz.weight", sizes, k_heads)
        thin = [f"{ours}.{name}.weight" for name in ("strength", "forget")]
        yield fused(thin, f"{theirs}.in_proj_ba.weight", [per_key] * 2, k_heads)


def _deltanet_config(mixer: Mixer) -> ConfigJson:
    """Arguments of the config class that a layer without attention tells."""
    if not isinstance(mixer, GatedDeltaNet):
        return {}
    k_heads, head_dim, v_dim = mixer.sizes()
    return {
        "linear_num_value_heads": mixer.heads,
        "linear_num_key_heads": k_heads,
        "linear_key_head_dim": head_dim,
        "linear_value_head_dim": v_dim,
        "linear_conv_kernel_dim": mixer.conv,
    }


def _deltanet_weights(mixer: GatedDeltaNet, ours: str, theirs: str) -> Iterator[Pair]:
    """All but those of its input projections."""
    channels = sum(mixer.widths)
    yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", (channels, mixer.conv), (channels, 1, mixer.conv))
    yield same(f"{ours}.decay.log_rate", f"{theirs}.A_log")
    yield same(f"{ours}.decay.step_bias", f"{theirs}.dt_bias")
    yield same(f"{ours}.head_norm.gain", f"{theirs}.norm.weight")
    yield same(f"{ours}.o.weight", f"{theirs}.out_proj.weight")
