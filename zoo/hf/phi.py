"""Phi-1, Phi-1.5 and Phi-2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, linears, norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import DROPOUT, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.hf._rope import FRACTION
from zoo.spec import ModelSpec


class Phi(LlamaLike):
    """x + attention(h) + mlp(h), h = LayerNorm(x), with partial RoPE, and biases also on the logits. Li et al. 2023,
    arXiv:2309.05463."""

    model_types: ClassVar[tuple[str, ...]] = ("phi",)
    has_head_dim: ClassVar[bool] = False
    partial_rotary: ClassVar[bool] = True
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "embd_pdrop": "embedding_dropout"}
    model_fixed: ClassVar[SpecJson] = {"head_bias": True}
    block_keys: ClassVar[Keys] = {"resid_pdrop": DROPOUT}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "input_layernorm"}
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

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from norm_weights(spec.block.norm, "norm", "model.final_layernorm")
        yield same("head_bias", "lm_head.bias")

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "dense"}
        yield from linears(ours, theirs, names, names)
        if (norm := attention(layer).qk_norm) is not None:
            for part in ("q", "k"):
                yield from norm_weights(norm, f"{ours}.{part}_norm", f"{theirs}.{part}_layernorm")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"up": "fc1", "down": "fc2"}
        return linears(ours, theirs, names, names)
