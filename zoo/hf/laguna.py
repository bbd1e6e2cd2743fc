"""Laguna."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import EXPERT_SIZES
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import QKV, Key, Keys, without
from zoo.hf._layered import Layered
from zoo.hf._layers import SLIDING, types_of
from zoo.hf._pairs import Pair, same
from zoo.hf._rope_by_layer import RopeByType
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

HEADS = "num_attention_heads_per_layer"
FEATURE, HEAD = "per-feature", "per-head"


class Laguna(RopeByType, ListedExperts):
    """Windows on some layers, with positions and heads of their own, softplus gates on the heads' outputs, sigmoid
    experts. Poolside 2026, https://huggingface.co/poolside/Laguna-XS.2."""

    model_types: ClassVar[tuple[str, ...]] = ("laguna",)
    qk_norm: ClassVar[SpecJson | None] = {}
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {
        **without(ListedExperts.mixer_keys, "num_attention_heads"),
        "attention_bias": Key("bias", lambda biased: [*QKV, "o"] if biased else False, bool),
    }
    expert_fixed: ClassVar[SpecJson] = {**ListedExperts.expert_fixed, "shared_experts": 1}
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "moe_routed_scaling_factor": Key("scale", float),
        "moe_router_logit_softcapping": Key("router_softcap", lambda cap: cap or None, lambda cap: cap or 0.0),
        "shared_expert_intermediate_size": Key("shared_d_ff", resolved="shared_width"),
    }

    def spec(self, config: Config) -> SpecJson:
        config.only("moe_apply_router_weight_on_input", False)
        config.ignore("num_attention_heads", "router_aux_loss_coef")  # what follows from lists, and of training
        return Layered.spec(self, config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        heads = [f"heads_{count}" for count in config[HEADS]]
        return [[SLIDING] * (kind == SLIDING) + [own] for kind, own in zip(types_of(config), heads, strict=True)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits = {**super().edits(config), **{f"heads_{n}": {"mixer.heads": n} for n in config[HEADS]}}
        near = {"mixer.window": config["sliding_window"], "mixer.position": self.position_of(config, SLIDING)}
        return {**edits, SLIDING: near}

    def mixer(self, config: Config) -> SpecJson:
        per_head = config["gating"] in (True, HEAD)
        if not config["gating"]:
            raise UnsupportedError("gating", "transformers always has a gate")
        gate = "head_softplus" if per_head else "feature_softplus"
        return {**super().mixer(config), "gate": gate, "heads": config[HEADS][0]}

    def head_dim(self, config: Config) -> int:
        return int(config["head_dim"])

    def experts(self, config: Config) -> SpecJson:
        if not config["shared_expert_intermediate_size"]:
            raise UnsupportedError("shared_expert_intermediate_size", "a shared expert has features")
        return super().experts(config)

    def config(self, spec: ModelSpec) -> ConfigJson:
        heads = [attention(layer).heads for layer in spec.layers]
        return {**super().config(spec), HEADS: heads, "num_attention_heads": heads[0]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        per_head = attention(layer).gate == "head_softplus"
        return {**super().block_config(layer), "gating": HEAD if per_head else FEATURE}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        yield same(f"{ours}.gate.project.weight", f"{theirs}.g_proj.weight")
