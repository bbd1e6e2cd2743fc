"""Hunyuan: the dense models of 2025, Hunyuan-A13B and Hunyuan 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Key, Keys
from zoo.hf._ffn import EXPERT_SIZES
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import ListedExperts
from zoo.hf._layers import attention
from zoo.positions.rope import RoPE
from zoo.positions.scalings.by_factor import NTK
from zoo.settings.edits import SpecJson


class Hunyuan(LlamaLike):
    """Hunyuan: Llama with a QK norm for each head, after RoPE. Tencent 2025,
    https://github.com/Tencent-Hunyuan/Hunyuan-7B."""

    model_types: ClassVar[tuple[str, ...]] = ("hunyuan_v1_dense",)
    ignored: ClassVar[tuple[str, ...]] = ("eod_token_id",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_after_position": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    qk_norm_names: ClassVar[Mapping[str, str]] = {"q": "query_layernorm", "k": "key_layernorm"}

    def position(self, config: Config) -> SpecJson:
        """RoPE. `dynamic` with an `alpha` is NTK-aware scaling by it at every length, and reads no other setting."""
        parameters = config.get("rope_parameters") or {}
        if parameters.get("rope_type") != "dynamic" or not parameters.get("alpha"):
            return super().position(config)
        config.ignore("max_position_embeddings", "rope_theta", "rope_scaling")
        scaling = {"kind": "ntk", "factor": float(parameters["alpha"])}
        return RoPE.model_validate({"base": float(parameters["rope_theta"]), "scaling": scaling}).model_dump(
            mode="json"
        )

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        position = attention(layer).position
        if not isinstance(position, RoPE) or not isinstance(position.scaling, NTK):
            return super().position_config(layer)
        own = {"rope_type": "dynamic", "alpha": position.scaling.factor, "factor": 1.0}
        return {"rope_parameters": {"rope_theta": position.base, **own}}


class HunyuanMoe(Hunyuan):
    """Hunyuan-A13B: experts and a shared expert in every layer. Tencent 2025,
    https://github.com/Tencent-Hunyuan/Hunyuan-A13B."""

    model_types: ClassVar[tuple[str, ...]] = ("hunyuan_v1_moe",)
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe", "shared_experts": 1, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = {"intermediate_size": WIDTH, "num_experts": "experts", "moe_topk": "top_k"}
    router_name: ClassVar[str] = "gate.wg"
    shared_name: ClassVar[str] = "shared_mlp"

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("output_router_logits")
        experts, layers = self.experts(config), config["num_hidden_layers"]
        top_k = experts["top_k"]
        by_layer = set(top_k[:layers] if isinstance(top_k, list) else [top_k])
        if len(by_layer) != 1:
            raise UnsupportedError("moe_topk", f"{top_k} cannot be converted: all layers must have the same number")
        return {**experts, "top_k": by_layer.pop()}


class Hunyuan3(ListedExperts):
    """Hunyuan 3: attention with a QK norm for each head, sigmoid experts with a load-balancing bias. Tencent 2026,
    https://huggingface.co/tencent/Hy3-preview."""

    model_types: ClassVar[tuple[str, ...]] = ("hy_v3",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**ListedExperts.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**ListedExperts.ffn_keys, "mlp_bias": "bias"}
    balance_name: ClassVar[str] = "e_score_correction_bias"
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "num_shared_experts": "shared_experts",
        "router_scaling_factor": Key("scale", float),
        "mlp_bias": "shared_bias",
    }

    def experts(self, config: Config) -> SpecJson:
        config.ignore("enable_moe_fp32_combine")  # the precision of a sum
        if not config["num_shared_experts"]:
            reason = "must be positive: without it, transformers adds a shared expert of intermediate_size"
            raise UnsupportedError("num_shared_experts", reason)
        return super().experts(config)
