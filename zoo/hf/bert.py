"""BERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson, Keys
from zoo.hf._family import Pair, Task, both, layernorm, same
from zoo.hf._ffn import plain_activation
from zoo.hf._gpt import LearnedPositions
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

POOLER = (
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)
"""Keys of published configs about the pooler, which the head of masked-language modelling does not read."""


class BERT(LearnedPositions):
    """The encoder with the head of masked-language modelling. Devlin et al. 2018, arXiv:1810.04805."""

    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    ignored: ClassVar[tuple[str, ...]] = ("classifier_dropout", *POOLER)
    task: ClassVar[Task] = "masked"
    buffers: ClassVar[tuple[str, ...]] = ("cls.predictions.bias",)
    """Alias of the head's bias, or, if embeddings are not tied, a bias that nothing reads."""

    length_key: ClassVar[str] = "max_position_embeddings"
    model_keys: ClassVar[Keys] = {
        **LearnedPositions.model_keys,
        "type_vocab_size": "token_types",
        "hidden_dropout_prob": "embedding_dropout",
    }
    model_fixed: ClassVar[SpecJson] = {"visible": "all", "head_bias": True, "embedding_norm": True}
    block_keys: ClassVar[Keys] = {"hidden_dropout_prob": "dropout"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "post"}
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "attention_probs_dropout_prob": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}
    layers_name: ClassVar[str] = "bert.encoder.layer"
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_after": "attention.output.LayerNorm",
        "ffn_residual.norm_after": "output.LayerNorm",
    }
    mixer_name: ClassVar[str] = "attention"
    mixer_names: ClassVar[Mapping[str, str]] = {
        "q": "self.query",
        "k": "self.key",
        "v": "self.value",
        "o": "output.dense",
    }
    ffn_name: ClassVar[str] = ""
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "intermediate.dense", "down": "output.dense"}

    def spec(self, config: Config) -> SpecJson:
        config.only("is_decoder", False)
        config.only("add_cross_attention", False)
        config.only("position_embedding_type", "absolute")
        return {**super().spec(config), "head_transform": plain_activation(config, self.activation_key)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        if spec.visible != "all" or spec.token_types is None:
            raise UnsupportedError("visible", "BERT needs visible: all and token_types")
        return super().config(spec)

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        theirs = "bert.embeddings"
        yield same("embedding.weight", f"{theirs}.word_embeddings.weight")
        yield same("positions.0.table.weight", f"{theirs}.position_embeddings.weight")
        yield same("token_types.weight", f"{theirs}.token_type_embeddings.weight")
        yield from layernorm("embedding_norm", f"{theirs}.LayerNorm")
        theirs = "cls.predictions"
        yield from both("transform.dense", f"{theirs}.transform.dense", bias=True)
        yield from layernorm("transform.norm", f"{theirs}.transform.LayerNorm")
        yield same("head_bias", f"{theirs}.decoder.bias")
        if not spec.tie_embeddings:
            yield same("head.weight", f"{theirs}.decoder.weight")
