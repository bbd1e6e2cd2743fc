"""OPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._common import attention, dense, expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._ffn import activation, ffn
from zoo.hf._gpt import linears
from zoo.hf._pairs import Pair, layernorm, same
from zoo.norms.layernorm import LayerNorm
from zoo.positions.learned import Learned
from zoo.spec import ModelSpec

OFFSET = 2
"""Rows of the table of positions before that of the first token."""


class OPT(Family):
    """Zhang et al. 2022, arXiv:2205.01068."""

    model_types: ClassVar[tuple[str, ...]] = ("opt",)

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
        config.ignore("activation_dropout", "init_std", "learned_embeddings", "scale_embeddings")
        affine = config["layer_norm_elementwise_affine"]
        width, d_model = config["word_embed_proj_dim"], config["hidden_size"]
        before, removed = config["do_layer_norm_before"], config["_remove_final_layer_norm"]
        return {
            "vocab_size": config["vocab_size"],
            "d_model": d_model,
            "n_layers": config["num_hidden_layers"],
            "tie_embeddings": config["tie_word_embeddings"],
            "embedding_dim": None if width == d_model else width,
            "final_norm": before and not removed,
            "block": {
                "norm": {"kind": "layernorm", "gain": affine, "bias": affine},
                "norm_placement": "pre" if before else "post",
                "dropout": config["dropout"],
                "mixer": {
                    "kind": "attention",
                    "heads": config["num_attention_heads"],
                    "position": {"kind": "learned", "length": config["max_position_embeddings"], "offset": OFFSET},
                    "bias": config["enable_bias"],
                    "dropout": config["attention_dropout"],
                },
                "ffn": {
                    **ffn(config, "activation_function", gated=False),
                    "d_ff": config["ffn_dim"],
                    "bias": config["enable_bias"],
                },
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = attention(layer)
        before = layer.norm_placement.kind == "pre"
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "word_embed_proj_dim": spec.table_width,
            "do_layer_norm_before": before,
            "_remove_final_layer_norm": before and not spec.has_final_norm,
            "layer_norm_elementwise_affine": expect(layer.norm, LayerNorm, "norm").gain,
            "dropout": layer.dropout,
            "num_attention_heads": mixer.heads,
            "max_position_embeddings": expect(mixer.position, Learned, "mixer.position").length,
            "enable_bias": bool(mixer.bias),
            "attention_dropout": mixer.dropout,
            "activation_function": activation(layer.ffn, gated=False),
            "ffn_dim": dense(layer).width,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "model.decoder.embed_tokens.weight")
        yield same("positions.0.table.weight", "model.decoder.embed_positions.weight")
        if spec.embedding_dim is not None:
            yield same("project_in.weight", "model.decoder.project_in.weight")
            yield same("project_out.weight", "model.decoder.project_out.weight")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        affine = expect(spec.block.norm, LayerNorm, "norm").gain
        if affine and spec.has_final_norm:
            yield from layernorm("norm", "model.decoder.final_layer_norm")
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"model.decoder.layers.{i}"
            place = "norm_in" if layer.norm_placement.kind == "pre" else "norm_after"
            if affine:
                yield from layernorm(f"{ours}.mixer_residual.{place}", f"{theirs}.self_attn_layer_norm")
                yield from layernorm(f"{ours}.ffn_residual.{place}", f"{theirs}.final_layer_norm")
            names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
            yield from linears(f"{ours}.mixer", f"{theirs}.self_attn", names, attention(layer).bias)
            names = {"up": "fc1", "down": "fc2"}
            yield from linears(f"{ours}.ffn", theirs, names, names if dense(layer).bias else ())
