"""BLOOM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._gpt import fused_qkv, linears
from zoo.hf._pairs import Pair, layernorm, same
from zoo.spec import ModelSpec

UNREAD = (
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "n_inner",
    "offset_alibi",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
)
"""Keys of published configs that transformers does not read."""


class Bloom(Family):
    """BigScience 2022, arXiv:2211.05100."""

    model_types: ClassVar[tuple[str, ...]] = ("bloom",)

    def spec(self, config: Config) -> SpecJson:
        if config["slow_but_exact"] and config["pretraining_tp"] > 1:
            raise UnsupportedError("slow_but_exact", "transformers leaves out the biases of the output projections")
        config.ignore(*UNREAD)
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": config["n_layer"],
            "tie_embeddings": config["tie_word_embeddings"],
            "embedding_norm": True,
            "block": {
                "norm": {"kind": "layernorm", "eps": config["layer_norm_epsilon"]},
                "norm_placement": "normed" if config["apply_residual_connection_post_layernorm"] else "pre",
                "dropout": config["hidden_dropout"],
                "mixer": {
                    "kind": "attention",
                    "heads": config["n_head"],
                    "position": "alibi",
                    "bias": True,
                    "dropout": config["attention_dropout"],
                },
                "ffn": {"kind": "gelu", "approximate": "tanh", "d_ff": 4 * config["hidden_size"], "bias": True},
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = attention(layer)
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "n_layer": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "layer_norm_epsilon": norm_eps(layer),
            "apply_residual_connection_post_layernorm": layer.norm_placement.kind == "normed",
            "hidden_dropout": layer.dropout,
            "n_head": mixer.heads,
            "attention_dropout": mixer.dropout,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "transformer.word_embeddings.weight")
        yield from layernorm("embedding_norm", "transformer.word_embeddings_layernorm")
        yield from layernorm("norm", "transformer.ln_f")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i, layer in enumerate(spec.layers):
            ours, theirs, mixer = f"blocks.{i}", f"transformer.h.{i}", attention(layer)
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.input_layernorm")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.post_attention_layernorm")
            yield from fused_qkv(mixer, f"{ours}.mixer", f"{theirs}.self_attention.query_key_value", mixer.heads)
            yield from linears(f"{ours}.mixer", f"{theirs}.self_attention", {"o": "dense"}, "o")
            names = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}
            yield from linears(f"{ours}.ffn", f"{theirs}.mlp", names, names)
