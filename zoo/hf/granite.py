"""Granite 3 and 4, Granite Swash, PowerMoE, and HyperCLOVA X SEED, which has the same multipliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import WIDTH, Config, ConfigJson, Key, Keys
from zoo.hf._family import Pair, fused_layers, same
from zoo.hf._ffn import balance_loss
from zoo.hf._keyed import PRE
from zoo.hf._layers import SLIDING, attention, dense, layered, reciprocal, sliding_types, turns, window_config
from zoo.hf._rope_by_layer import SomeRoPE
from zoo.hf.bamba import Mamba2Hybrid
from zoo.hf.llama import Llama
from zoo.hf.mistral import Mixtral
from zoo.mixers.attention import Attention
from zoo.positions.rope import RoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Granite(Llama):
    """Granite 3: Llama with multipliers of embeddings, scores, branches and logits. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granite",)
    preference: ClassVar[int] = 1
    model_keys: ClassVar[Keys] = {
        **Llama.model_keys,
        "embedding_multiplier": Key("embedding_scale", float, resolved="embedding_factor"),
        "logits_scaling": Key("logit_scale", lambda scaling: 1 / scaling, reciprocal),
    }
    mixer_keys: ClassVar[Keys] = {**Llama.mixer_keys, "attention_multiplier": Key("scale", float)}

    def block(self, config: Config) -> SpecJson:
        placement = {"kind": "pre", "branch_scale": float(config["residual_multiplier"])}
        return {**super().block(config), "norm_placement": placement}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "residual_multiplier": layer.norm_placement.branch_scale}


OUTPUT_NORMS = {"mixer_residual.norm_out": "post_norm1", "ffn_residual.norm_out": "post_norm2"}


class HyperClovaX(Granite):
    """HyperCLOVA X SEED: Granite's multipliers, with or without norms after the branches. NAVER Cloud 2025,
    https://huggingface.co/naver-hyperclovax/HyperCLOVAX-SEED-Think-14B."""

    model_types: ClassVar[tuple[str, ...]] = ("hyperclovax",)
    preference: ClassVar[int] = 3
    model_keys: ClassVar[Keys] = {
        **Llama.model_keys,
        "embedding_multiplier": Granite.model_keys["embedding_multiplier"],
        "logits_scaling": Key("logit_scale", float),
    }

    def block(self, config: Config) -> SpecJson:
        block = super().block(config)
        kind = "double" if config["use_post_norm"] else "pre"
        return {**block, "norm_placement": {**block["norm_placement"], "kind": kind}}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_post_norm": layer.norm_placement.kind == "double"}

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return PRE | OUTPUT_NORMS if layer.norm_placement.kind == "double" else PRE


class GraniteMoe(Granite):
    """Granite 3 with experts, and PowerMoE: Granite's multipliers with experts in every layer. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoe",)
    preference: ClassVar[int] = 2
    has_head_dim: ClassVar[bool] = False
    experts_class: ClassVar[type[MoE] | tuple[()]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = Mixtral.expert_keys
    ffn_name: ClassVar[str] = "block_sparse_moe"
    router_name: ClassVar[str] = "router"

    def ffn(self, config: Config) -> SpecJson:
        return {**self.experts(config), "balance_loss": balance_loss(config)}


class GraniteMoeShared(GraniteMoe):
    """Granite with experts and a shared expert on all layers. Granite Team 2025, https://huggingface.co/ibm-granite."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoeshared",)
    preference: ClassVar[int] = 3
    expert_keys: ClassVar[Keys] = {
        **GraniteMoe.expert_keys,
        "shared_intermediate_size": Key("shared_d_ff", lambda width: width or None, resolved="shared_width"),
    }
    shared_name: ClassVar[str] = "shared_mlp"

    def experts(self, config: Config) -> SpecJson:
        return {**super().experts(config), "shared_experts": int(config["shared_intermediate_size"] > 0)}

    def shared_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        return fused_shared(ours, theirs.replace("block_sparse_moe.", ""), moe.shared_width)


def fused_shared(ours: str, theirs: str, width: int) -> Iterator[Pair]:
    """Gate and up, which transformers fuses, and down of a shared expert or a dense FFN."""
    yield from fused_layers(ours, ("gate", "up"), f"{theirs}.input_linear", [width] * 2)
    yield same(f"{ours}.down.weight", f"{theirs}.output_linear.weight")


class GraniteMoeHybrid(Mamba2Hybrid, GraniteMoeShared):
    """Granite 4: Mamba-2 in most layers, attention, mostly without positions, in the others; experts and a shared
    expert in every layer, or dense FFNs. Granite Team 2025, https://huggingface.co/ibm-granite/granite-4.0-h-small."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoehybrid",)
    ffn_keys: ClassVar[Keys] = {"shared_intermediate_size": WIDTH}

    def ffn(self, config: Config) -> SpecJson:
        if config["num_local_experts"] > 0:
            return GraniteMoeShared.ffn(self, config)
        return Mamba2Hybrid.ffn(self, config)

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {kind: edits for kind, edits in super().edits(config).items() if kind != "experts"}

    def position(self, config: Config) -> SpecJson:
        if config["position_embedding_type"] == "rope":
            return super().position(config)
        config.ignore("max_position_embeddings", "rope_parameters")
        return {"kind": "nope"}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        if not any(isinstance(layer.ffn, MoE) for layer in spec.layers):
            arguments["num_local_experts"] = 0
        turned = any(isinstance(layer.mixer, Attention) and turns(layer) for layer in spec.layers)
        return {**arguments, "position_embedding_type": "rope" if turned else None}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if turns(layer) else {}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.ffn, MoE):
            return self.expert_weights(layer.ffn, ours, theirs)
        return fused_shared(ours, theirs.removesuffix("block_sparse_moe") + "shared_mlp", dense(layer).width)


BASES = "layer_rope_theta"


class SlidingGranite(SomeRoPE, Granite):
    """Granite with a sink for each head, windows on some layers, and a RoPE base for each layer, where 0 means NoPE."""

    preference: ClassVar[int] = 4
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "sinks": True}

    def spec(self, config: Config) -> SpecJson:
        spec, types, bases = super().spec(config), sliding_types(config), config[BASES]
        position = spec["block"]["mixer"]["position"]
        edits: dict[str, SpecJson] = {SLIDING: {"mixer.window": config["sliding_window"]}}
        for base in bases:
            edits[_name(base)] = {"mixer.position": {**position, "base": float(base)} if base else "nope"}
        kinds = [[SLIDING] * (kind == SLIDING) + [_name(base)] for kind, base in zip(types, bases, strict=True)]
        return {**spec, **layered(kinds, edits)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        positions = [attention(layer).position for layer in spec.layers]
        bases = [position.base if isinstance(position, RoPE) else 0 for position in positions]
        return {**super().config(spec), **window_config(spec), BASES: bases}


def _name(base: float) -> str:
    """Name of the edit for layers with this RoPE base."""
    return f"base_{base}".replace(".", "_") if base else "nope"


class GraniteSwa(SlidingGranite):
    """Granite Swash: Granite with sinks, windows on most layers, and RoPE or none by layer. Granite Team 2026,
    https://huggingface.co/ibm-granite/granite-swash-2b."""

    model_types: ClassVar[tuple[str, ...]] = ("granite_swa",)
    has_head_dim: ClassVar[bool] = False


class GraniteMoeSwa(SlidingGranite, GraniteMoeShared):
    """Granite Swash with experts: Granite with experts, sinks, windows on most layers, and RoPE or none by layer.
    Granite Team 2026, https://huggingface.co/ibm-granite/granite-swash-3b-a600m."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoe_swa",)
