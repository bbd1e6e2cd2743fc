"""BLOOM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import FusedQKV
from zoo.hf._keys import Keys
from zoo.hf._pairs import Pair
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Bloom(FusedQKV):
    """BigScience 2022, arXiv:2211.05100."""

    model_types: ClassVar[tuple[str, ...]] = ("bloom",)
    # Keys of published configs that transformers does not read.
    ignored: ClassVar[tuple[str, ...]] = (
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "n_inner",
        "offset_alibi",
        "seq_length",
        "skip_bias_add",
        "skip_bias_add_qkv",
    )
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "n_layer": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
    }
    model_fixed: ClassVar[SpecJson] = {"embedding_norm": True}
    block_keys: ClassVar[Keys] = {"hidden_dropout": "dropout"}
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"n_head": "heads", "attention_dropout": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    fixed_position: ClassVar[SpecJson | None] = {"kind": "alibi"}
    table_name: ClassVar[str] = "transformer.word_embeddings"
    final_norm_name: ClassVar[str] = "transformer.ln_f"
    layers_name: ClassVar[str] = "transformer.h"
    mixer_name: ClassVar[str] = "self_attention"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}

    def spec(self, config: Config) -> SpecJson:
        if config["slow_but_exact"] and config["pretraining_tp"] > 1:
            raise UnsupportedError("slow_but_exact", "transformers leaves out the biases of the output projections")
        return super().spec(config)

    def block(self, config: Config) -> SpecJson:
        normed = config["apply_residual_connection_post_layernorm"]
        return {**super().block(config), "norm_placement": "normed" if normed else "pre"}

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "gelu", "approximate": "tanh", "d_ff": 4 * config["hidden_size"], "bias": True}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        normed = layer.norm_placement.kind == "normed"
        return {**super().block_config(layer), "apply_residual_connection_post_layernorm": normed}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().ends(spec)
        yield from norm_weights(spec.block.norm, "embedding_norm", "transformer.word_embeddings_layernorm")
