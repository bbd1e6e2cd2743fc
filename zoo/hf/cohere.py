"""Command R, Command R+ and all that share their config: Aya."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same
from zoo.spec import ModelSpec


class Cohere(LlamaLike):
    """x + attention(h) + gated(h), h = LayerNorm(x) without biases. Cohere 2024,
    https://docs.cohere.com/docs/command-r-plus."""

    model_types: ClassVar[tuple[str, ...]] = ("cohere",)
    heeds_qk_norm: ClassVar[bool] = True
    """Whether the model reads `use_qk_norm`."""

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), "logit_scale": config["logit_scale"]}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "topology": "parallel"}

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "layernorm", "eps": config["layer_norm_eps"], "bias": False}

    def mixer(self, config: Config) -> SpecJson:
        mixer = {**super().mixer(config), "bias": config["attention_bias"]}
        mixer["position"] = {**mixer["position"], "layout": "interleaved"}
        if self.heeds_qk_norm and config["use_qk_norm"]:
            mixer |= {"qk_norm": self.norm(config), "qk_norm_over": "heads"}
        return mixer

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = {**super().config(spec), "logit_scale": spec.logit_scale}
        if arguments["head_dim"] * arguments["num_attention_heads"] == spec.d_model:
            del arguments["head_dim"]
        return arguments

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        return {
            **super().block_config(layer),
            "attention_bias": bool(mixer.bias),
            "use_qk_norm": mixer.qk_norm is not None,
        }

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {"layer_norm_eps": norm_eps(layer)}

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.mixer_residual.norm_in.gain", f"{theirs}.input_layernorm.weight")

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
