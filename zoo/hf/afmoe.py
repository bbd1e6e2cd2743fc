"""Arcee's Trinity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import EXPERT_SIZES
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keys import QKV, Key, Keys
from zoo.hf._pairs import Pair, same
from zoo.hf._rope_by_layer import NearRoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Afmoe(NearRoPE, FineExperts):
    """Norms on both sides of a branch, gated attention with a norm of each head's queries and keys, windows with RoPE
    and full attention without, sigmoid experts after some dense layers. Arcee AI 2026, arXiv:2602.17004."""

    model_types: ClassVar[tuple[str, ...]] = ("afmoe",)
    qk_norm: ClassVar[SpecJson | None] = {}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    mixer_keys: ClassVar[Keys] = {
        **FineExperts.mixer_keys,
        "attention_bias": Key("bias", lambda biased: [*QKV, "o"] if biased else False, bool),
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "gate": "feature"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "mixer_residual.norm_out": "post_attention_layernorm",
        "ffn_residual.norm_in": "pre_mlp_layernorm",
        "ffn_residual.norm_out": "post_mlp_layernorm",
    }
    router_name: ClassVar[str] = "router.gate"
    balance_name: ClassVar[str] = "expert_bias"
    dense_key: ClassVar[str] = "num_dense_layers"
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "num_shared_experts": "shared_experts",
        "route_scale": Key("scale", float),
    }

    def spec(self, config: Config) -> SpecJson:
        config.ignore("global_attn_every_n_layers")  # it only says what layer_types are by default
        return {**super().spec(config), "embedding_scale": "sqrt_d_model" if config["mup_enabled"] else 1.0}

    def config(self, spec: ModelSpec) -> ConfigJson:
        factor = spec.embedding_factor
        if factor not in (1.0, spec.d_model**0.5):
            raise UnsupportedError("embedding_scale", f"{factor} cannot be expressed, only 1 and √d_model")
        return {**super().config(spec), "mup_enabled": factor != 1}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        yield same(f"{ours}.gate.project.weight", f"{theirs}.gate_proj.weight")
