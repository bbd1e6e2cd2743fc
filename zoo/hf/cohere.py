"""Command R, Command R+ and all that share their config: Aya."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import torch

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Cohere(LlamaLike):
    """x + attention(h) + gated(h), h = LayerNorm(x) without biases. Cohere 2024,
    https://docs.cohere.com/docs/command-r-plus."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere",)
    heeds_qk_norm: ClassVar[bool] = True
    """Whether the model reads `use_qk_norm`."""
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "logit_scale": "logit_scale"}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "bias": False}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "input_layernorm"}

    def mixer(self, config: Config) -> SpecJson:
        mixer = super().mixer(config)
        if self.heeds_qk_norm and config["use_qk_norm"]:
            mixer |= {"qk_norm": self.norm(config), "qk_norm_over": "heads"}
        return mixer

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        if arguments["head_dim"] * arguments["num_attention_heads"] == spec.d_model:
            del arguments["head_dim"]
        return arguments

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_qk_norm": attention(layer).qk_norm is not None}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        mixer = attention(layer)
        plain = layer.model_copy(update={"mixer": mixer.model_copy(update={"qk_norm": None})})
        yield from super().mixer_weights(plain, ours, theirs)
        if mixer.qk_norm is not None:
            heads, kv_heads, _ = mixer.sizes()
            yield _own_gains(heads, f"{ours}.q_norm", f"{theirs}.q_norm")
            yield _own_gains(kv_heads, f"{ours}.k_norm", f"{theirs}.k_norm")


def _own_gains(heads: int, ours: str, theirs: str) -> Pair:
    """One vector of gains for each head is one row of theirs."""
    names = tuple(f"{ours}.norms.{head}.gain" for head in range(heads))
    return Pair(names, (f"{theirs}.weight",), lambda x: x[0].unbind(0), lambda x: [torch.stack(list(x))])
