"""Phi-1, Phi-1.5 and Phi-2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import linears
from zoo.hf._keys import DROPOUT, Keys
from zoo.hf._layernorm_rope import LayerNormRoPE
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Phi(LayerNormRoPE):
    """x + attention(h) + mlp(h), h = LayerNorm(x), with partial RoPE, and biases also on the logits. Li et al. 2023,
    arXiv:2309.05463."""

    model_types: ClassVar[tuple[str, ...]] = ("phi",)
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "embd_pdrop": "embedding_dropout"}
    model_fixed: ClassVar[SpecJson] = {"head_bias": True}
    block_keys: ClassVar[Keys] = {"resid_pdrop": DROPOUT}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "input_layernorm"}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        yield same("head_bias", "lm_head.bias")

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "dense"}
        yield from linears(ours, theirs, names, names)
        yield from self.qk_norm_weights(layer, ours, theirs)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"up": "fc1", "down": "fc2"}
        return linears(ours, theirs, names, names)
