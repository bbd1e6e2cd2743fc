"""OPT and BioGPT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Keys
from zoo.hf._family import Pair, same
from zoo.hf._gpt import LearnedPositions
from zoo.hf._layers import PROJECTIONS, expect
from zoo.norms.layernorm import LayerNorm
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

OFFSET = 2
"""Rows of the position table before the first token's."""


class OPT(LearnedPositions):
    """OPT. Zhang et al. 2022, arXiv:2205.01068."""

    model_types: ClassVar[tuple[str, ...]] = ("opt",)
    ignored: ClassVar[tuple[str, ...]] = ("activation_dropout", "init_std", "learned_embeddings", "scale_embeddings")

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
    table_name: ClassVar[str] = "model.decoder.embed_tokens"
    positions_name: ClassVar[str] = "model.decoder.embed_positions"
    final_norm_name: ClassVar[str] = "model.decoder.final_layer_norm"
    layers_name: ClassVar[str] = "model.decoder.layers"
    mixer_names: ClassVar[Mapping[str, str]] = {**PROJECTIONS, "o": "out_proj"}
    ffn_name: ClassVar[str] = ""
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "fc1", "down": "fc2"}

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
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

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().ends(spec)
        if spec.embedding_dim is not None:
            yield same("project_in.weight", "model.decoder.project_in.weight")
            yield same("project_out.weight", "model.decoder.project_out.weight")

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        place = "norm_in" if layer.norm_placement.kind == "pre" else "norm_after"
        return {f"mixer_residual.{place}": "self_attn_layer_norm", f"ffn_residual.{place}": "final_layer_norm"}


class BioGPT(LearnedPositions):
    """OPT with scaled embeddings, biases everywhere, and dropout on the embeddings, too. Luo et al. 2022,
    arXiv:2210.10341."""

    model_types: ClassVar[tuple[str, ...]] = ("biogpt",)
    ignored: ClassVar[tuple[str, ...]] = ("layer_norm_eps",)  # norms have torch's default ε
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
    table_name: ClassVar[str] = "biogpt.embed_tokens"
    positions_name: ClassVar[str] = "biogpt.embed_positions"
    head_name: ClassVar[str] = "output_projection"
    final_norm_name: ClassVar[str] = "biogpt.layer_norm"
    layers_name: ClassVar[str] = "biogpt.layers"
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "self_attn_layer_norm",
        "ffn_residual.norm_in": "final_layer_norm",
    }
    mixer_names: ClassVar[Mapping[str, str]] = OPT.mixer_names
    ffn_name: ClassVar[str] = ""
    ffn_names: ClassVar[Mapping[str, str]] = OPT.ffn_names

    def spec(self, config: Config) -> SpecJson:
        config.only("layerdrop", 0.0)
        config.only("activation_dropout", 0.0)
        scale = "sqrt_d_model" if config["scale_embedding"] else 1.0
        dropout = config["hidden_dropout_prob"]
        return {**super().spec(config), "embedding_scale": scale, "embedding_dropout": dropout}

    def config(self, spec: ModelSpec) -> ConfigJson:
        factor = spec.embedding_factor
        if factor not in (1.0, spec.d_model**0.5):
            raise UnsupportedError("embedding_scale", f"{factor} cannot be converted, only 1 and √d_model")
        return {**super().config(spec), "scale_embedding": factor != 1.0}
