"""Base of most families: Llama's block, with some of its parts exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, attention_weights, dense, gated_weights, norm_eps, outside, pre_norms
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._ffn import activation, ffn
from zoo.hf._pairs import Pair, same
from zoo.hf._rope import partial_rope_config, rope, rope_config
from zoo.spec import ModelSpec


class LlamaLike(Family):
    """x + attention(norm(x)), x + gated(norm(x)), with RMSNorm and RoPE. Families override what differs."""

    partial_rotary: ClassVar[bool] = False
    """Whether the model heeds `partial_rotary_factor`."""
    activation_key: ClassVar[str] = "hidden_act"

    def spec(self, config: Config) -> SpecJson:
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": config["num_hidden_layers"],
            "tie_embeddings": config["tie_word_embeddings"],
            "block": self.block(config),
        }

    def block(self, config: Config) -> SpecJson:
        """The base block."""
        return {"norm": self.norm(config), "mixer": self.mixer(config), "ffn": self.ffn(config)}

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "rmsnorm", "eps": config["rms_norm_eps"]}

    def mixer(self, config: Config) -> SpecJson:
        """Attention without biases."""
        return {
            "kind": "attention",
            "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"],
            "head_dim": self.head_dim(config),
            "position": self.position(config),
            "dropout": float(config["attention_dropout"]),
        }

    def head_dim(self, config: Config) -> int:
        """Features of a head: where the config does not say, what is left of D / H is in no head."""
        return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])

    def position(self, config: Config) -> SpecJson:
        return rope(config, self.head_dim(config), partial=self.partial_rotary)

    def ffn(self, config: Config) -> SpecJson:
        """A gated FFN without biases."""
        return {**ffn(config, self.activation_key, gated=True), "d_ff": config["intermediate_size"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            **self.block_config(self.typical(spec)),
        }

    def typical(self, spec: ModelSpec) -> BlockSpec:
        """The layer that tells what the config says once for all layers."""
        return spec.layers[0]

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        """Arguments of the config class that a layer tells."""
        mixer = attention(layer)
        return {
            **self.norm_config(layer),
            "num_attention_heads": mixer.heads,
            "num_key_value_heads": mixer.kv_heads,
            "head_dim": mixer.head_dim,
            "attention_dropout": mixer.dropout,
            **self.ffn_config(layer),
            **self.position_config(layer),
        }

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        config = partial_rope_config if self.partial_rotary else rope_config
        return config(attention(layer).position)

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {self.activation_key: activation(layer.ffn, gated=True), "intermediate_size": dense(layer).width}

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {"rms_norm_eps": norm_eps(layer)}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from self.final_norm_weights(spec)
        yield from outside(spec)
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"model.layers.{i}"
            yield from self.norm_weights(ours, theirs)
            yield from self.mixer_weights(layer, f"{ours}.mixer", f"{theirs}.self_attn")
            yield from self.ffn_weights(layer, f"{ours}.ffn", f"{theirs}.mlp")

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        """The norm before the head."""
        yield same("norm.gain", "model.norm.weight")

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        """The norms of a layer, given names of the layer."""
        yield from pre_norms(ours, theirs)

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from attention_weights(attention(layer), ours, theirs)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from gated_weights(dense(layer), ours, theirs)
