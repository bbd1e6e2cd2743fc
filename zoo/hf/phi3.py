"""Phi-3 and Phi-4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention, dense, fused_gate_up
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import DROPOUT, Keys
from zoo.hf._pairs import Pair, fused, same
from zoo.hf.mistral import Mistral
from zoo.settings.edits import SpecJson


class Phi3(Mistral):
    """Mistral with queries, keys and values in one matrix, and gate and up in one. Abdin et al. 2024,
    arXiv:2404.14219."""

    model_types: ClassVar[tuple[str, ...]] = ("phi3",)
    partial_rotary: ClassVar[bool] = True
    block_keys: ClassVar[Keys] = {"resid_pdrop": DROPOUT}

    def block(self, config: Config) -> SpecJson:
        config.ignore("embd_pdrop", "full_attn_mod", "interpolate_factor")  # transformers does not read them
        config.ignore("original_max_position_embeddings")  # of LongRoPE, which reads it
        return super().block(config)

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        """LongRoPE's length stands beside its other settings."""
        length = getattr(getattr(attention(layer).position, "scaling", None), "original_length", None)
        beside = {} if length is None else {"original_max_position_embeddings": length}
        return {**super().position_config(layer), **beside}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        heads, kv_heads, head_dim = attention(layer).sizes()
        sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        yield fused([f"{ours}.{name}.weight" for name in "qkv"], f"{theirs}.qkv_proj.weight", sizes)
        yield same(f"{ours}.o.weight", f"{theirs}.o_proj.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return fused_gate_up(dense(layer), ours, theirs)
