"""Command R to Command A+, and Aya, which shares their configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import torch

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Keys, read, write
from zoo.hf._family import Pair
from zoo.hf._ffn import activation, expert_act, ffn, name_of
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import DENSE, Listed
from zoo.hf._layers import FULL, SLIDING, attention, dense, turns, types_of, window_config
from zoo.hf._rope_by_layer import NearRoPE, SomeRoPE
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Cohere(LlamaLike):
    """Command R, Command R+ and Aya: x + attention(h) + gated(h), h = LayerNorm(x) without biases. Cohere 2024,
    https://docs.cohere.com/docs/command-r-plus."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "heads"}
    qk_norm_key: ClassVar[str | None] = "use_qk_norm"
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "logit_scale": "logit_scale"}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "bias": False}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "input_layernorm"}
    qk_norm_names: ClassVar[Mapping[str, str]] = {}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        if arguments["head_dim"] * arguments["num_attention_heads"] == spec.d_model:
            del arguments["head_dim"]
        return arguments

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        yield from super().mixer_weights(layer, ours, theirs)
        if mixer.qk_norm is not None:
            heads, kv_heads, _ = mixer.sizes()
            yield _own_gains(heads, f"{ours}.q_norm", f"{theirs}.q_norm")
            yield _own_gains(kv_heads, f"{ours}.k_norm", f"{theirs}.k_norm")


def _own_gains(heads: int, ours: str, theirs: str) -> Pair:
    """Gains of single heads, which are the rows of one tensor of theirs."""
    names = tuple(f"{ours}.norms.{head}.gain" for head in range(heads))
    return Pair(names, (f"{theirs}.weight",), lambda x: x[0].unbind(0), lambda x: [torch.stack(list(x))])


class Cohere2(NearRoPE, Cohere):
    """Command A, Command R7B: windows with RoPE, full attention without positions. Cohere 2025, arXiv:2504.00698."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere2",)
    # Keys of published configs that transformers does not read, or reads only for the default of `layer_types`.
    ignored: ClassVar[tuple[str, ...]] = (
        "_sliding_window_pattern",
        "order_of_interleaved_layers",
        "position_embedding_type",
        "rotary_pct",
        "sliding_window_pattern",
        "use_embedding_sharing",
        "use_gated_activation",
        "use_parallel_block",
        "use_parallel_embedding",
        "use_qk_norm",
    )
    qk_norm: ClassVar[SpecJson | None] = None
    qk_norm_key: ClassVar[str | None] = None


FAR = "far"
DEFAULTED = ("sliding_window_pattern", "rope_theta", "rope_scaling", "first_k_dense_replace")
"""Keys that only set the defaults of others."""


class Cohere2Moe(SomeRoPE, Listed, Cohere):
    """Command A+: Command A with experts, and RoPE or none on dense layers without a window. Cohere 2026,
    https://huggingface.co/CohereLabs/command-a-plus-05-2026."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere2_moe",)
    ignored: ClassVar[tuple[str, ...]] = DEFAULTED
    qk_norm: ClassVar[SpecJson | None] = None
    qk_norm_key: ClassVar[str | None] = None
    experts_class: ClassVar[tuple[type[MoE], ...]] = (TopKMoE, DeepSeekMoE)  # type: ignore[assignment]
    expert_keys: ClassVar[Keys] = {
        "intermediate_size": WIDTH,
        "num_experts": "experts",
        "num_experts_per_tok": "top_k",
        "num_shared_experts": "shared_experts",
    }

    def norm(self, config: Config) -> SpecJson:
        if config["rms_norm_eps"] is not None:
            config.ignore("layer_norm_eps")
            return {"kind": "rmsnorm", "eps": config["rms_norm_eps"]}
        return super().norm(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        turned = config["prefix_dense_sliding_window_pattern"] == 1
        kinds = zip(types_of(config), config["mlp_layer_types"], strict=True)
        return [[SLIDING] if kind == SLIDING else [] if turned and ffn == DENSE else [FAR] for kind, ffn in kinds]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits = {SLIDING: {"mixer.window": config["sliding_window"]}, FAR: {"mixer.position": "nope"}}
        return {**super().edits(config), **edits}

    def ffn(self, config: Config) -> SpecJson:
        width = config["prefix_dense_intermediate_size"]
        return {**ffn(config, "hidden_act", gated=True), "d_ff": width or config["intermediate_size"]}

    def experts(self, config: Config) -> SpecJson:
        act = name_of(**ffn(config, "hidden_act", gated=True))
        shared = {**read(self.expert_keys, config), "activation": act, "balance_loss": 0.0}
        if shared["shared_experts"]:
            mean = config.only("shared_expert_combination_strategy", "average", "sum") == "average"
            shared["shared_mean"] = mean
        config.ignore("shared_expert_combination_strategy")
        if config.only("expert_selection_fn", "softmax", "sigmoid") == "softmax":
            config.ignore("norm_topk_prob")
            return {"kind": "topk_moe", **shared}
        return {"kind": "deepseek_moe", "bias_rate": None, "normalise": config["norm_topk_prob"], **shared}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = {**super().config(spec), **window_config(spec)}
        kinds = zip(arguments["layer_types"], arguments["mlp_layer_types"], spec.layers, strict=True)
        far = {turns(layer) for kind, ffn, layer in kinds if (kind, ffn) == (FULL, DENSE)}
        arguments["head_dim"] = attention(spec.layers[0]).head_dim
        return {**arguments, "prefix_dense_sliding_window_pattern": 2 if far == {False} else 1}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        eps = layer.norm.eps if isinstance(layer.norm, RMSNorm) else None
        return {**super().block_config(layer), "rms_norm_eps": eps}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        if not isinstance(layer.ffn, MoE):
            width = {"prefix_dense_intermediate_size": dense(layer).width}
            return {"hidden_act": activation(layer.ffn, gated=True), **width}
        moe = layer.ffn
        sigmoid = {"norm_topk_prob": moe.normalise} if isinstance(moe, DeepSeekMoE) else {}
        return {
            "hidden_act": expert_act(moe),
            **write(self.expert_keys, moe, "ffn"),
            "shared_expert_combination_strategy": "average" if moe.shared_mean else "sum",
            "expert_selection_fn": "sigmoid" if isinstance(moe, DeepSeekMoE) else "softmax",
            **sigmoid,
        }
