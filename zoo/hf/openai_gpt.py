"""GPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import UNGATED, activation
from zoo.hf._gpt import UNREAD, LearnedPositions, OpenAILike, conv_weights
from zoo.hf._pairs import Pair, layernorm, same
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Names of this family by those of all others: its `gelu` is the tanh approximation."""


class OpenAIGPT(LearnedPositions, OpenAILike):
    """Radford et al. 2018, https://openai.com/research/language-unsupervised."""

    model_types: ClassVar[tuple[str, ...]] = ("openai-gpt",)

    block_fixed: ClassVar[SpecJson] = {"norm_placement": "post"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        return super().spec(config)

    def ffn(self, config: Config) -> SpecJson:
        kind = UNGATED[ACTIVATIONS[config.only("afn", *ACTIVATIONS)]]
        return {**kind, "d_ff": 4 * config["n_embd"], "bias": True}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        act = activation(layer.ffn, gated=False)
        names = [name for name, general in ACTIVATIONS.items() if general == act]
        if not names:
            raise UnsupportedError("ffn", f"{act} has no counterpart")
        return {"afn": names[0]}

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
