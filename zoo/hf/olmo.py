"""OLMo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair
from zoo.spec import ModelSpec


class Olmo(LlamaLike):
    """Llama with norms that have no parameters, and clipped queries, keys and values. Groeneveld et al. 2024,
    arXiv:2402.00838."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo",)

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "layernorm", "eps": 1e-5, "gain": False, "bias": False}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["attention_bias"], "clip_qkv": config["clip_qkv"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        return {**super().block_config(layer), "attention_bias": bool(mixer.bias), "clip_qkv": mixer.clip_qkv}

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        return iter(())

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        return iter(())
