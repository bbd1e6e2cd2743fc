"""Arcee's AFM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import dense
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import activation, ffn
from zoo.hf._gpt import linears
from zoo.hf._pairs import Pair
from zoo.hf.llama import Llama


class Arcee(Llama):
    """Llama with squared ReLU. Arcee AI 2025, https://huggingface.co/arcee-ai/AFM-4.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("arcee",)
    preference: ClassVar[int] = 1

    def ffn(self, config: Config) -> SpecJson:
        kind = ffn(config, "hidden_act", gated=False)
        return {**kind, "d_ff": config["intermediate_size"], "bias": config["mlp_bias"]}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {"hidden_act": activation(layer.ffn, gated=False), "intermediate_size": dense(layer).width}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"up": "up_proj", "down": "down_proj"}
        yield from linears(ours, theirs, names, names if dense(layer).bias else ())
