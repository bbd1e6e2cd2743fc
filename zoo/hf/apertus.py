"""Apertus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns.xielu import XIELU
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, Keys, read, write
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.settings.edits import SpecJson


class Apertus(LlamaLike):
    """Llama with xIELU and a norm of each head's queries and keys. Apertus Team 2025, arXiv:2509.14233."""

    model_types: ClassVar[tuple[str, ...]] = ("apertus",)
    qk_norm: ClassVar[SpecJson | None] = {}
    buffers: ClassVar[tuple[str, ...]] = (*LlamaLike.buffers, "*.act_fn.beta", "*.act_fn.eps")
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    has_head_dim: ClassVar[bool] = False
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "attention_layernorm",
        "ffn_residual.norm_in": "feedforward_layernorm",
    }

    def ffn(self, config: Config) -> SpecJson:
        if config[self.activation_key] == "xielu":
            return {"kind": "xielu", **read(self.ffn_keys, config)}
        return super().ffn(config)

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        if isinstance(layer.ffn, XIELU):
            return {self.activation_key: "xielu", **write(self.ffn_keys, layer.ffn, "ffn")}
        return super().ffn_config(layer)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().ffn_weights(layer, ours, theirs)
        if isinstance(layer.ffn, XIELU):
            yield same(f"{ours}.activation.positive", f"{theirs}.act_fn.alpha_p")
            yield same(f"{ours}.activation.negative", f"{theirs}.act_fn.alpha_n")
