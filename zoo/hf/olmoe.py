"""OLMoE."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._qwen_experts import QwenExperts
from zoo.spec import ModelSpec


class Olmoe(QwenExperts):
    """Experts in every layer, and a norm over the full width of queries and keys. Muennighoff et al. 2024,
    arXiv:2409.02060."""

    model_types: ClassVar[tuple[str, ...]] = ("olmoe",)
    width_key: ClassVar[str] = "intermediate_size"

    def sparse(self, config: Config) -> list[bool]:
        return [True] * int(config["num_hidden_layers"])

    def mixer(self, config: Config) -> SpecJson:
        config.only("clip_qkv", None)  # transformers clips behind the norm
        norm = {"qk_norm": self.norm(config), "qk_norm_over": "full"}
        return {**super().mixer(config), "bias": config["attention_bias"], **norm}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        if arguments.pop("mlp_only_layers"):
            raise UnsupportedError("ffn", "every layer has experts")
        del arguments["decoder_sparse_step"]
        return arguments

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}
