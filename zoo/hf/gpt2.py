"""GPT, GPT-2, GPT-Neo, SantaCoder and StarCoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import DROPOUT, WIDTH, Config, ConfigJson, Keys
from zoo.hf._ffn import UNGATED, activation
from zoo.hf._gpt import UNREAD, FusedQKV, LearnedPositions, OpenAILike, Transposed
from zoo.hf._layers import PROJECTIONS, attention, pattern, window_of
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GPT2(Transposed, LearnedPositions, OpenAILike):
    """GPT-2 and models with its config. Radford et al. 2019, https://openai.com/research/better-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt2",)
    ignored: ClassVar[tuple[str, ...]] = (*UNREAD, "reorder_and_upcast_attn")

    def spec(self, config: Config) -> SpecJson:
        config.only("add_cross_attention", False)
        spec = super().spec(config)
        if config["scale_attn_by_inverse_layer_idx"]:
            scale, names = spec["block"]["mixer"]["scale"], [f"layer_{i}" for i in range(spec["n_layers"])]
            # Layer i divides its scores by i + 1.
            spec["blocks"] = {name: {"mixer.scale": scale / (i + 1)} for i, name in enumerate(names)}
            spec["pattern"] = names
        return spec

    def mixer(self, config: Config) -> SpecJson:
        scale = (config["n_embd"] // config["n_head"]) ** -0.5 if config["scale_attn_weights"] else 1.0
        return {**super().mixer(config), "scale": scale}

    def config(self, spec: ModelSpec) -> ConfigJson:
        first, last = attention(spec.layers[0]).scale, attention(spec.layers[-1]).scale
        own = {"scale_attn_weights": first != 1, "scale_attn_by_inverse_layer_idx": last != first}
        return {**super().config(spec), **own}


ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
"""Names of activations in other families, keyed by GPT's: its `gelu` is the tanh approximation."""


class OpenAIGPT(Transposed, LearnedPositions, OpenAILike):
    """GPT. Radford et al. 2018, https://openai.com/research/language-unsupervised."""

    model_types: ClassVar[tuple[str, ...]] = ("openai-gpt",)
    ignored: ClassVar[tuple[str, ...]] = UNREAD

    block_fixed: ClassVar[SpecJson] = {"norm_placement": "post"}
    table_name: ClassVar[str] = "transformer.tokens_embed"
    positions_name: ClassVar[str] = "transformer.positions_embed"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_after": "ln_1", "ffn_residual.norm_after": "ln_2"}

    def ffn(self, config: Config) -> SpecJson:
        kind = UNGATED[ACTIVATIONS[config.only("afn", *ACTIVATIONS)]]
        return {**kind, "d_ff": 4 * config["n_embd"], "bias": True}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        act = activation(layer.ffn, gated=False)
        names = [name for name, general in ACTIVATIONS.items() if general == act]
        if not names:
            raise UnsupportedError("ffn", f"{act} has no counterpart")
        return {"afn": names[0]}


class BigCode(FusedQKV, LearnedPositions, OpenAILike):
    """SantaCoder and StarCoder: GPT-2 with multi-query attention. Ben Allal et al. 2023, arXiv:2301.03988; Li et al.
    2023, arXiv:2305.06161."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_bigcode",)
    fused_name: ClassVar[str] = "c_attn"
    mixer_names: ClassVar[Mapping[str, str]] = {"o": "c_proj"}

    def spec(self, config: Config) -> SpecJson:
        # Precision and kernel of the softmax, a key that follows from others, and keys that no version reads any more.
        config.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "num_key_value_heads", *UNREAD)
        config.ignore("inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length")
        config.ignore("pre_allocate_kv_cache", "validate_runner_input")
        config.only("add_cross_attention", False)
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        own = {"kv_heads": 1 if config["multi_query"] else None}
        return {**super().mixer(config), **own, **({} if config["scale_attn_weights"] else {"scale": 1.0})}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        plain = {"multi_query": mixer.kv_heads == 1, "scale_attn_weights": mixer.scale != 1}
        return {**super().block_config(layer), **plain}


LOCAL, GLOBAL = "local", "global"


class GPTNeo(LearnedPositions, OpenAILike):
    """GPT-Neo: GPT-2 with unscaled scores, and windows on some layers. Black et al. 2021,
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
    mixer_keys: ClassVar[Keys] = {"num_heads": "heads", "attention_dropout": DROPOUT}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": ["o"], "scale": 1.0}
    ffn_keys: ClassVar[Keys] = {"intermediate_size": WIDTH}
    mixer_name: ClassVar[str] = "attn.attention"
    mixer_names: ClassVar[Mapping[str, str]] = {**PROJECTIONS, "o": "out_proj"}

    def spec(self, config: Config) -> SpecJson:
        # The short form of attention_layers, and keys that the language model does not read.
        config.ignore("attention_types", "classifier_dropout", "summary_first_dropout", *UNREAD)
        kinds = [BASE if kind == GLOBAL else kind for kind in config["attention_layers"]]
        return {**super().spec(config), **pattern(kinds, {LOCAL: {"mixer.window": config["window_size"]}})}

    def config(self, spec: ModelSpec) -> ConfigJson:
        kinds = [GLOBAL if attention(layer).window is None else LOCAL for layer in spec.layers]
        window = window_of(spec)
        types = {"attention_types": [[[kind], 1] for kind in kinds]}
        return {**super().config(spec), **types, **({} if window is None else {"window_size": window})}
