"""GPT-Neo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._common import attention, linears
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import UNREAD, LearnedPositions, ends
from zoo.hf._keys import DROPOUT, Keys
from zoo.hf._layers import pattern, window_of
from zoo.hf._pairs import Pair, layernorm
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

LOCAL, GLOBAL = "local", "global"


class GPTNeo(LearnedPositions):
    """GPT-2 whose scores are not scaled, with windows on some layers. Black et al. 2021,
    https://doi.org/10.5281/zenodo.5297715."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_neo",)
    length_key: ClassVar[str] = "max_position_embeddings"
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "num_layers": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
        "embed_dropout": "embedding_dropout",
    }
    block_keys: ClassVar[Keys] = {"resid_dropout": DROPOUT}
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"num_heads": "heads", "attention_dropout": DROPOUT}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": ["o"], "scale": 1.0}
    activation_key: ClassVar[str] = "activation_function"
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}

    def spec(self, config: Config) -> SpecJson:
        # What attention_layers spell out, and what the language model does not read.
        config.ignore("attention_types", "classifier_dropout", "summary_first_dropout", *UNREAD)
        kinds = [BASE if kind == GLOBAL else kind for kind in config["attention_layers"]]
        return {**super().spec(config), **pattern(kinds, {LOCAL: {"mixer.window": config["window_size"]}})}

    def ffn(self, config: Config) -> SpecJson:
        kind = super().ffn(config)
        return {**kind, "d_ff": 4 * config["hidden_size"] if kind["d_ff"] is None else kind["d_ff"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        kinds = [GLOBAL if attention(layer).window is None else LOCAL for layer in spec.layers]
        window = window_of(spec)
        types = {"attention_types": [[[kind], 1] for kind in kinds]}
        return {**super().config(spec), **types, **({} if window is None else {"window_size": window})}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from ends(spec)
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.ln_2")
            names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
            yield from linears(f"{ours}.mixer", f"{theirs}.attn.attention", names, "o")
            names = {"up": "c_fc", "down": "c_proj"}
            yield from linears(f"{ours}.ffn", f"{theirs}.mlp", names, names)
