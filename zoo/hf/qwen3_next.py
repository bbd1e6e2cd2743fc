"""Qwen3-Next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config
from zoo.hf._keys import CONV, Key, Keys, convolved
from zoo.hf._layered import Hybrid
from zoo.hf._pairs import Pair, both, fused, reshaped, same
from zoo.hf._qwen_experts import QwenSharedExperts
from zoo.mixers import Mixer
from zoo.mixers._projections import GATE, NAMES
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.settings.edits import SpecJson


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
    state_keys: ClassVar[Keys] = {
        "linear_num_value_heads": "heads",
        "linear_num_key_heads": "k_heads",
        "linear_key_head_dim": "head_dim",
        "linear_value_head_dim": "v_dim",
        "linear_conv_kernel_dim": CONV,
    }

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


def deltanet_weights(
    mixer: GatedDeltaNet, ours: str, theirs: str, norm: str = "norm", output: str = "out_proj"
) -> Iterator[Pair]:
    """All but those of its input projections. norm, output: names of the norm and of the output projection."""
    channels, width = sum(mixer.widths), convolved(mixer.conv)
    yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", (channels, width), (channels, 1, width))
    yield same(f"{ours}.decay.log_rate", f"{theirs}.A_log")
    yield same(f"{ours}.decay.step_bias", f"{theirs}.dt_bias")
    yield same(f"{ours}.head_norm.gain", f"{theirs}.{norm}.weight")
    yield same(f"{ours}.o.weight", f"{theirs}.{output}.weight")
