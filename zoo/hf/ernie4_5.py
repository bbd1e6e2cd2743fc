"""ERNIE 4.5."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike


class Ernie(LlamaLike):
    """Llama with interleaved RoPE and one setting for all biases. Baidu 2025,
    https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf."""

    model_types: ClassVar[tuple[str, ...]] = ("ernie4_5",)

    def mixer(self, config: Config) -> SpecJson:
        config.ignore("attention_dropout", "compression_ratio")  # transformers does not read them
        return {
            "kind": "attention",
            "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"],
            "head_dim": self.head_dim(config),
            "position": {**self.position(config), "layout": "interleaved"},
            "bias": config["use_bias"],
        }

    def ffn(self, config: Config) -> SpecJson:
        return {**super().ffn(config), "bias": config["use_bias"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = {**super().block_config(layer), "use_bias": bool(attention(layer).bias)}
        del arguments["attention_dropout"]
        return arguments
