"""StarCoder 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, dense, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import activation, ffn
from zoo.hf._pairs import Pair, both, layernorm
from zoo.hf.mistral import Mistral
from zoo.spec import ModelSpec

UNREAD = (
    "activation_function",
    "attention_softmax_in_fp32",
    "layer_norm_epsilon",
    "mlp_type",
    "norm_type",
    "scale_attention_softmax_in_fp32",
    "scale_attn_weights",
)
"""Keys of published configs that transformers does not read."""


class Starcoder2(Mistral):
    """Mistral with LayerNorm, an ungated FFN, and biases. Lozhkov et al. 2024, arXiv:2402.19173."""

    model_types: ClassVar[tuple[str, ...]] = ("starcoder2",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        return {**super().spec(config), "embedding_dropout": float(config["embedding_dropout"])}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "dropout": float(config["residual_dropout"])}

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "layernorm", "eps": config["norm_epsilon"]}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["use_bias"]}

    def ffn(self, config: Config) -> SpecJson:
        kind = ffn(config, "hidden_act", gated=False)
        return {**kind, "d_ff": config["intermediate_size"], "bias": config["use_bias"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), "embedding_dropout": spec.embedding_dropout}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {
            **super().block_config(layer),
            "use_bias": bool(attention(layer).bias),
            "residual_dropout": layer.dropout,
        }

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {"hidden_act": activation(layer.ffn, gated=False), "intermediate_size": dense(layer).width}

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {"norm_epsilon": norm_eps(layer)}

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        return layernorm("norm", "model.norm")

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.input_layernorm")
        yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.post_attention_layernorm")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        bias = dense(layer).bias
        yield from both(f"{ours}.up", f"{theirs}.c_fc", bias=bias)
        yield from both(f"{ours}.down", f"{theirs}.c_proj", bias=bias)
