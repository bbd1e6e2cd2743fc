"""Persimmon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention, linears
from zoo.hf._config import Config
from zoo.hf._gpt import fused_qkv
from zoo.hf._keys import DROPOUT, Keys
from zoo.hf._layernorm_rope import LayerNormRoPE
from zoo.hf._pairs import Pair
from zoo.settings.edits import SpecJson


class Persimmon(LayerNormRoPE):
    """LayerNorm, also of each head's queries and keys, partial RoPE, and an FFN of squared ReLU. Adept 2023,
    https://huggingface.co/adept/persimmon-8b-base."""

    model_types: ClassVar[tuple[str, ...]] = ("persimmon",)
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "attention_dropout": DROPOUT}

    def block(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)  # transformers applies it to the FFN alone
        return super().block(config)

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        yield from fused_qkv(mixer, ours, f"{theirs}.query_key_value", mixer.heads)
        yield from linears(ours, theirs, {"o": "dense"}, "o")
        yield from self.qk_norm_weights(layer, ours, theirs)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}
        return linears(ours, theirs, names, names)
