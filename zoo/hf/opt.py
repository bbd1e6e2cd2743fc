"""OPT and BioGPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.hf._common import attention, dense, expect, linears, norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import LearnedPositions
from zoo.hf._keys import BIAS, WIDTH, Keys
from zoo.hf._pairs import Pair, layernorm, same
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


class BioGPT(LearnedPositions):
    """OPT with scaled embeddings, biases everywhere, and dropout of the embeddings, too. Luo et al. 2022,
    arXiv:2210.10341."""

    model_types: ClassVar[tuple[str, ...]] = ("biogpt",)
    preference: ClassVar[int] = 3
    length_key: ClassVar[str] = "max_position_embeddings"
    offset: ClassVar[int] = OFFSET
    block_keys: ClassVar[Keys] = {"hidden_dropout_prob": "dropout"}
    norm_keys: ClassVar[Keys] = {}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "attention_probs_dropout_prob": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"intermediate_size": WIDTH}
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
        config.only("activation_dropout", 0.0)
        config.ignore("layer_norm_eps")  # norms have torch's
        scale = "sqrt_d_model" if config["scale_embedding"] else 1.0
        dropout = config["hidden_dropout_prob"]
        return {**super().spec(config), "embedding_scale": scale, "embedding_dropout": dropout}

    def config(self, spec: ModelSpec) -> ConfigJson:
        factor = spec.embedding_factor
        if factor not in (1.0, spec.d_model**0.5):
            raise UnsupportedError("embedding_scale", f"{factor} cannot be expressed, only 1 and √d_model")
        return {**super().config(spec), "scale_embedding": factor != 1.0}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "biogpt.embed_tokens.weight")
        yield same("positions.0.table.weight", "biogpt.embed_positions.weight")
        yield from layernorm("norm", "biogpt.layer_norm")
        if not spec.tie_embeddings:
            yield same("head.weight", "output_projection.weight")
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"biogpt.layers.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.self_attn_layer_norm")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.final_layer_norm")
            names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
            yield from linears(f"{ours}.mixer", f"{theirs}.self_attn", names, names)
            names = {"up": "fc1", "down": "fc2"}
            yield from linears(f"{ours}.ffn", theirs, names, names)
