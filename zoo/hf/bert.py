"""BERT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, dense, expect, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family, Task
from zoo.hf._ffn import activation, ffn, name_of
from zoo.hf._pairs import Pair, both, layernorm, same
from zoo.positions.learned import Learned
from zoo.spec import ModelSpec

ATTENTION = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}

POOLER = (
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)
"""Keys of published configs about what the head of masked-language modelling does not read."""


class BERT(Family):
    """The encoder with the head of masked-language modelling. Devlin et al. 2018, arXiv:1810.04805."""

    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    task: ClassVar[Task] = "masked"
    buffers: ClassVar[tuple[str, ...]] = ("cls.predictions.bias",)
    """Another name of the bias that the head adds, or where embeddings are not tied a bias that nothing reads."""

    def spec(self, config: Config) -> SpecJson:
        config.only("is_decoder", False)
        config.only("add_cross_attention", False)
        config.only("position_embedding_type", "absolute")
        config.ignore("classifier_dropout", *POOLER)
        block_ffn = ffn(config, "hidden_act", gated=False)
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": config["num_hidden_layers"],
            "visible": "all",
            "tie_embeddings": config["tie_word_embeddings"],
            "token_types": config["type_vocab_size"],
            "head_transform": name_of(**block_ffn),
            "head_bias": True,
            "embedding_norm": True,
            "embedding_dropout": config["hidden_dropout_prob"],
            "block": {
                "norm": {"kind": "layernorm", "eps": config["layer_norm_eps"]},
                "norm_placement": "post",
                "dropout": config["hidden_dropout_prob"],
                "mixer": {
                    "kind": "attention",
                    "heads": config["num_attention_heads"],
                    "position": {"kind": "learned", "length": config["max_position_embeddings"]},
                    "bias": True,
                    "dropout": config["attention_probs_dropout_prob"],
                },
                "ffn": {**block_ffn, "d_ff": config["intermediate_size"], "bias": True},
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        if spec.visible != "all" or spec.token_types is None:
            raise UnsupportedError("visible", "only an encoder with token types has this counterpart")
        layer = spec.layers[0]
        mixer = attention(layer)
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "type_vocab_size": spec.token_types,
            "layer_norm_eps": norm_eps(layer),
            "hidden_dropout_prob": layer.dropout,
            "attention_probs_dropout_prob": mixer.dropout,
            "num_attention_heads": mixer.heads,
            "max_position_embeddings": expect(mixer.position, Learned, "mixer.position").length,
            "hidden_act": activation(layer.ffn, gated=False),
            "intermediate_size": dense(layer).width,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        theirs = "bert.embeddings"
        yield same("embedding.weight", f"{theirs}.word_embeddings.weight")
        yield same("positions.0.table.weight", f"{theirs}.position_embeddings.weight")
        yield same("token_types.weight", f"{theirs}.token_type_embeddings.weight")
        yield from layernorm("embedding_norm", f"{theirs}.LayerNorm")
        for i in range(spec.n_layers):
            yield from self._block(f"blocks.{i}", f"bert.encoder.layer.{i}")
        theirs = "cls.predictions"
        yield from both("transform.dense", f"{theirs}.transform.dense", bias=True)
        yield from layernorm("transform.norm", f"{theirs}.transform.LayerNorm")
        yield same("head_bias", f"{theirs}.decoder.bias")
        if not spec.tie_embeddings:
            yield same("head.weight", f"{theirs}.decoder.weight")

    def _block(self, ours: str, theirs: str) -> Iterator[Pair]:
        for own, name in ATTENTION.items():
            yield from both(f"{ours}.mixer.{own}", f"{theirs}.attention.{name}", bias=True)
        yield from layernorm(f"{ours}.mixer_residual.norm_after", f"{theirs}.attention.output.LayerNorm")
        yield from both(f"{ours}.ffn.up", f"{theirs}.intermediate.dense", bias=True)
        yield from both(f"{ours}.ffn.down", f"{theirs}.output.dense", bias=True)
        yield from layernorm(f"{ours}.ffn_residual.norm_after", f"{theirs}.output.LayerNorm")
