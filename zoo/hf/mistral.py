"""Mistral, Ministral, Mixtral, StarCoder 2, and Code World Model, with windows on some layers like Ministral 8B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import BIAS, DROPOUT, MAJOR, WIDTH, Config, ConfigJson, Key, Keys
from zoo.hf._family import Pair
from zoo.hf._ffn import balance_loss
from zoo.hf._keyed import LlamaLike
from zoo.hf._layers import attention
from zoo.hf._rope import rope
from zoo.hf._rope_by_layer import SomeWindows
from zoo.settings.edits import SpecJson


class Mistral(LlamaLike):
    """Llama with a window on every layer. Jiang et al. 2023, arXiv:2310.06825."""

    model_types: ClassVar[tuple[str, ...]] = ("mistral",)
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "sliding_window": "window"}


BETA, LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"


class Ministral3(Mistral):
    """Ministral 3: Mistral whose queries are scaled up with their position. Mistral AI 2026, arXiv:2601.08584."""

    model_types: ClassVar[tuple[str, ...]] = ("ministral3",)
    preference: ClassVar[int] = 3

    def mixer(self, config: Config) -> SpecJson:
        parameters = config["rope_parameters"]
        grown = {"coefficient": parameters[BETA], "floor": parameters[LENGTH], "offset": 0}
        return {**super().mixer(config), "temperature": grown if parameters[BETA] else None}

    def position(self, config: Config) -> SpecJson:
        kind = config["rope_parameters"].get("rope_type", "default")
        unread = (BETA, "max_position_embeddings", *([] if kind in ("yarn", "llama3", "longrope") else [LENGTH]))
        return rope(config, self.head_dim(config), unread=unread)

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments, grown = super().position_config(layer), attention(layer).temperature
        own = {BETA: 0.0} if grown is None else {BETA: grown.coefficient, LENGTH: grown.floor}
        return {**arguments, "rope_parameters": {LENGTH: 1, **arguments["rope_parameters"], **own}}


class CodeWorldModel(SomeWindows):
    """Llama without biases, with windows on some layers. FAIR 2025 (CWM), arXiv:2510.02387."""

    model_types: ClassVar[tuple[str, ...]] = ("cwm", "ministral")
    ignored: ClassVar[tuple[str, ...]] = ("mlp_bias", "attention_bias")
    preference: ClassVar[int] = 2


class Mixtral(Mistral):
    """Mistral with experts. Jiang et al. 2024, arXiv:2401.04088.

    transformers computes one balance loss over all layers at once; ours is the mean over the layers.
    """

    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = {
        "intermediate_size": WIDTH,
        "num_local_experts": "experts",
        "num_experts_per_tok": "top_k",
    }
    expert_modules: ClassVar[Sequence[str]] = ("w1", "w3", "w2")

    def ffn(self, config: Config) -> SpecJson:
        return {**self.experts(config), "balance_loss": balance_loss(config)}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        if MAJOR < 5:
            theirs = theirs.removesuffix("mlp") + "block_sparse_moe"
        return super().expert_weights(moe, ours, theirs)


class Starcoder2(Mistral):
    """StarCoder 2: Mistral with LayerNorm, an ungated FFN, and biases. Lozhkov et al. 2024, arXiv:2402.19173."""

    model_types: ClassVar[tuple[str, ...]] = ("starcoder2",)
    # Keys of published configs that transformers does not read.
    ignored: ClassVar[tuple[str, ...]] = (
        "activation_function",
        "attention_softmax_in_fp32",
        "layer_norm_epsilon",
        "mlp_type",
        "norm_type",
        "scale_attention_softmax_in_fp32",
        "scale_attn_weights",
    )
    model_keys: ClassVar[Keys] = {**Mistral.model_keys, "embedding_dropout": Key("embedding_dropout", float)}
    block_keys: ClassVar[Keys] = {"residual_dropout": DROPOUT}
    norm_keys: ClassVar[Keys] = {"norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**Mistral.mixer_keys, "use_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**Mistral.ffn_keys, "use_bias": "bias"}
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "c_fc", "down": "c_proj"}
