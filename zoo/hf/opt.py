"""OPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._common import attention, dense, expect, linears, norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import LearnedPositions
from zoo.hf._keys import BIAS, WIDTH, Keys
from zoo.hf._pairs import Pair, same
from zoo.norms.layernorm import LayerNorm
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

OFFSET = 2
"""Rows of the table of positions before that of the first token."""


class OPT(LearnedPositions):
    """Zhang et al. 2022, arXiv:2205.01068."""

    model_types: ClassVar[tuple[str, ...]] = ("opt",)

    length_key: ClassVar[str] = "max_position_embeddings"
    offset: ClassVar[int] = OFFSET
    block_keys: ClassVar[Keys] = {"dropout": "dropout"}
    norm_keys: ClassVar[Keys] = {}
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "attention_dropout": "dropout",
        "enable_bias": BIAS,
    }
    activation_key: ClassVar[str] = "activation_function"
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"ffn_dim": WIDTH, "enable_bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
        config.ignore("activation_dropout", "init_std", "learned_embeddings", "scale_embeddings")
        spec, width, removed = super().spec(config), config["word_embed_proj_dim"], config["_remove_final_layer_norm"]
        spec["embedding_dim"] = None if width == spec["d_model"] else width
        return {**spec, "final_norm": config["do_layer_norm_before"] and not removed}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": "pre" if config["do_layer_norm_before"] else "post"}

    def norm(self, config: Config) -> SpecJson:
        affine = config["layer_norm_elementwise_affine"]
        return {"kind": "layernorm", "gain": affine, "bias": affine}

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        before = layer.norm_placement.kind == "pre"
        return {
            **super().config(spec),
            "word_embed_proj_dim": spec.table_width,
            "do_layer_norm_before": before,
            "_remove_final_layer_norm": before and not spec.has_final_norm,
            "layer_norm_elementwise_affine": expect(layer.norm, LayerNorm, "norm").gain,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "model.decoder.embed_tokens.weight")
        yield same("positions.0.table.weight", "model.decoder.embed_positions.weight")
        if spec.embedding_dim is not None:
            yield same("project_in.weight", "model.decoder.project_in.weight")
            yield same("project_out.weight", "model.decoder.project_out.weight")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        if spec.has_final_norm:
            yield from norm_weights(spec.block.norm, "norm", "model.decoder.final_layer_norm")
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"model.decoder.layers.{i}"
            place = "norm_in" if layer.norm_placement.kind == "pre" else "norm_after"
            yield from norm_weights(layer.norm, f"{ours}.mixer_residual.{place}", f"{theirs}.self_attn_layer_norm")
            yield from norm_weights(layer.norm, f"{ours}.ffn_residual.{place}", f"{theirs}.final_layer_norm")
            names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
            yield from linears(f"{ours}.mixer", f"{theirs}.self_attn", names, attention(layer).bias)
            names = {"up": "fc1", "down": "fc2"}
            yield from linears(f"{ours}.ffn", theirs, names, names if dense(layer).bias else ())
