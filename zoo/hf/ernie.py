"""ERNIE 4.5."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Keys
from zoo.hf._family import Pair, reshaped
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import Layered
from zoo.settings.edits import SpecJson


class Ernie(LlamaLike):
    """Llama with interleaved RoPE and one setting for all biases. Baidu 2025,
    https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf."""

    model_types: ClassVar[tuple[str, ...]] = ("ernie4_5",)
    ignored: ClassVar[tuple[str, ...]] = ("attention_dropout", "compression_ratio")  # transformers does not read them
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "use_bias": BIAS,
    }
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "use_bias": "bias"}


class ErnieMoe(Layered, Ernie):
    """ERNIE 4.5 with experts: softmax scores, a load-balancing bias, shared experts. Baidu 2025,
    https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf."""

    model_types: ClassVar[tuple[str, ...]] = ("ernie4_5_moe",)
    ignored: ClassVar[tuple[str, ...]] = ("output_router_logits", "router_aux_loss_coef")

    model_keys: ClassVar[Keys] = {**Ernie.model_keys, "use_bias": "head_bias"}
    experts_class: ClassVar[type[MoE]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {
        "kind": "deepseek_moe",
        "score": "softmax",
        "normalise": True,
        "balance_loss": 0.0,
    }
    expert_keys: ClassVar[Keys] = {
        "moe_intermediate_size": WIDTH,
        "moe_num_experts": "experts",
        "moe_k": "top_k",
        "moe_num_shared_experts": "shared_experts",
    }
    balance_name: ClassVar[str] = "gate.moe_statics.e_score_correction_bias"

    def sparse(self, config: Config) -> list[bool]:
        start, end = config["moe_layer_start_index"], config["moe_layer_end_index"]
        every, layers = config["moe_layer_interval"], config["num_hidden_layers"]
        return [start <= i <= end and (i + 1) % every == 0 for i in range(layers)]

    def experts(self, config: Config) -> SpecJson:
        config.only("moe_norm_min", 1e-12)
        experts = super().experts(config)
        return {**experts, "shared_bias": config["use_bias"] and experts["shared_experts"] > 0}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        places = [i for i, there in enumerate(sparse) if there]
        start, end = (places[0], places[-1]) if places else (len(sparse), len(sparse))
        every = places[1] - places[0] if len(places) > 1 else start + 1
        return {"moe_layer_start_index": start, "moe_layer_end_index": end, "moe_layer_interval": every}

    def balance_weights(self, moe: MoE, ours: str, theirs: str) -> Pair:
        return reshaped(ours, theirs, (moe.experts,), (1, moe.experts))
