"""Seed-OSS."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import DROPOUT, QKV, Keys
from zoo.hf.llama import Llama
from zoo.settings.edits import SpecJson


class SeedOss(Llama):
    """Llama with biases on queries, keys and values, and dropout on the branches. ByteDance Seed 2025,
    https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("seed_oss",)
    preference: ClassVar[int] = 1
    block_keys: ClassVar[Keys] = {"residual_dropout": DROPOUT}

    def mixer(self, config: Config) -> SpecJson:
        biases = [*QKV] * config["attention_bias"] + ["o"] * config["attention_out_bias"]
        return {**super().mixer(config), "bias": biases}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        bias = attention(layer).bias
        return {**super().block_config(layer), "attention_bias": "q" in bias, "attention_out_bias": "o" in bias}
