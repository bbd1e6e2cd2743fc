"""Llama's block with LayerNorm, partial RoPE and biases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair
from zoo.hf._rope import FRACTION
from zoo.settings.edits import SpecJson


class LayerNormRoPE(LlamaLike):
    """LayerNorm, also of each head's queries and keys where asked for, partial RoPE, biases, and an FFN without a
    gate."""

    has_head_dim: ClassVar[bool] = False
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    partial_rotary: ClassVar[bool] = True
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "qk_norm": self.norm(config) if config["qk_layernorm"] else None}

    def position(self, config: Config) -> SpecJson:
        position, head_dim = super().position(config), self.head_dim(config)
        if (cut := int(head_dim * position["fraction"])) % 2:
            raise UnsupportedError(FRACTION, f"{cut} of a head's {head_dim} features cannot be turned")
        return position

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "qk_layernorm": attention(layer).qk_norm is not None}

    def qk_norm_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        """Norms of each head's queries and keys, where the layer has them."""
        if (norm := attention(layer).qk_norm) is not None:
            for part in ("q", "k"):
                yield from norm_weights(norm, f"{ours}.{part}_norm", f"{theirs}.{part}_layernorm")
