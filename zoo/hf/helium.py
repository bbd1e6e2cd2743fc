"""Helium 1."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import QKV
from zoo.hf.llama import Llama


class Helium(Llama):
    """Llama with interleaved RoPE, and heads that are as wide as the stream together. Kyutai 2025,
    https://kyutai.org/2025/04/30/helium.html."""

    model_types: ClassVar[tuple[str, ...]] = ("helium",)
    preference: ClassVar[int] = 1

    def mixer(self, config: Config) -> SpecJson:
        mixer = super().mixer(config)
        biases = list(QKV) if config["attention_bias"] else False
        return {**mixer, "position": {**mixer["position"], "layout": "interleaved"}, "bias": biases}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        if "o" in mixer.bias:
            raise UnsupportedError("mixer.bias", "Helium's output projection has none")
        return super().block_config(layer)
