"""GPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._ffn import UNGATED, activation
from zoo.hf._gpt import UNREAD, conv_weights, sizes
from zoo.hf._pairs import Pair, layernorm, same
from zoo.positions.learned import Learned
from zoo.spec import ModelSpec

ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Names of this family by those of all others: its `gelu` is the tanh approximation."""


class OpenAIGPT(Family):
    """Radford et al. 2018, https://openai.com/research/language-unsupervised."""

    model_types: ClassVar[tuple[str, ...]] = ("openai-gpt",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["n_embd"],
            "n_layers": config["n_layer"],
            "tie_embeddings": config["tie_word_embeddings"],
            "embedding_dropout": config["embd_pdrop"],
            "block": {
                "norm": {"kind": "layernorm", "eps": config["layer_norm_epsilon"]},
                "norm_placement": "post",
                "dropout": config["resid_pdrop"],
                "mixer": {
                    "kind": "attention",
                    "heads": config["n_head"],
                    "position": {"kind": "learned", "length": config["n_positions"]},
                    "bias": True,
                    "dropout": config["attn_pdrop"],
                },
                "ffn": {
                    **UNGATED[ACTIVATIONS[config.only("afn", *ACTIVATIONS)]],
                    "d_ff": 4 * config["n_embd"],
                    "bias": True,
                },
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = attention(layer)
        return {
            **sizes(spec),
            "n_positions": expect(mixer.position, Learned, "mixer.position").length,
            "afn": _name(activation(layer.ffn, gated=False)),
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "transformer.tokens_embed.weight")
        yield same("positions.0.table.weight", "transformer.positions_embed.weight")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_after", f"{theirs}.ln_1")
            yield from layernorm(f"{ours}.ffn_residual.norm_after", f"{theirs}.ln_2")
            yield from conv_weights(spec.d_model, ours, theirs)


def _name(activation: str) -> str:
    names = [name for name, general in ACTIVATIONS.items() if general == activation]
    if not names:
        raise UnsupportedError("ffn", f"{activation} has no counterpart")
    return names[0]
