"""MiniMax-Text-01, MiniMax-M1 and MiniMax-M2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson, Keys
from zoo.hf._family import Pair, fused_layers, same
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import LINEAR, Hybrid
from zoo.hf._layers import FULL
from zoo.hf.mistral import Mixtral
from zoo.mixers import Mixer
from zoo.mixers.lightning import LightningAttention
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class MiniMax(Hybrid, Mixtral):
    """MiniMax-Text-01 and MiniMax-M1: Mixtral with lightning attention in most layers, and shortcuts that carry the
    normalised stream. MiniMax 2025, arXiv:2501.08313."""

    model_types: ClassVar[tuple[str, ...]] = ("minimax",)
    ignored: ClassVar[tuple[str, ...]] = ("block_size",)  # tokens computed at a time
    buffers: ClassVar[tuple[str, ...]] = tuple(
        f"*.self_attn.{name}" for name in ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    )
    state_class: ClassVar[type[Mixer]] = LightningAttention
    state_fixed: ClassVar[SpecJson] = {"kind": "lightning", "output_norm": {"kind": "rmsnorm", "eps": 1e-6}}
    state_keys: ClassVar[Keys] = {"num_attention_heads": "heads"}

    def spec(self, config: Config) -> SpecJson:
        config.only("router_jitter_noise", 0.0)
        return super().spec(config)

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {LINEAR: {"mixer": self.state(config), "norm_placement": self._placement(config, "linear")}}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": self._placement(config, "full")}

    def _placement(self, config: Config, kind: str) -> SpecJson:
        """Residual placement of both branches of a layer, which share their factors."""
        scales = {}
        for ours, theirs in (("stream_scale", "alpha"), ("branch_scale", "beta")):
            factor = config[f"{kind}_attn_{theirs}_factor"]
            if kind == FULL.removesuffix("_attention") or LINEAR in config["layer_types"]:
                config.only(f"mlp_{theirs}_factor", factor)
            scales[ours] = float(factor)
        return {"kind": "normed", **scales}

    def state(self, config: Config) -> SpecJson:
        return {**super().state(config), "head_dim": self.head_dim(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        placement = spec.layers[0].norm_placement
        factors = {
            f"{kind}_{name}_factor": scale
            for kind in ("full_attn", "linear_attn", "mlp")
            for name, scale in (("alpha", placement.stream_scale), ("beta", placement.branch_scale))
        }
        return {**super().config(spec), **factors}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = layer.mixer
        if not isinstance(mixer, LightningAttention):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        sizes = [mixer.key_features] * 3
        yield from fused_layers(ours, "qkv", f"{theirs}.qkv_proj", sizes, mixer.heads)
        yield same(f"{ours}.gate.weight", f"{theirs}.output_gate.weight")
        yield same(f"{ours}.output_norm.gain", f"{theirs}.norm.weight")
        yield same(f"{ours}.o.weight", f"{theirs}.out_proj.weight")


class MiniMaxM2(LlamaLike):
    """MiniMax-M2: full attention with partial RoPE and a QK norm over the full width; experts with sigmoid scores and a
    load-balancing bias. MiniMax 2025, https://huggingface.co/MiniMaxAI/MiniMax-M2."""

    model_types: ClassVar[tuple[str, ...]] = ("minimax_m2",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    partial_rotary: ClassVar[bool] = True
    experts_class: ClassVar[type[MoE]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "shared_experts": 0, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys
    balance_name: ClassVar[str] = "e_score_correction_bias"

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("router_aux_loss_coef", "output_router_logits")  # the bias alone balances load
        return self.experts(config)
