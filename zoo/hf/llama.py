"""Llama, and models that differ from it by a few settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, turns
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, DROPOUT, QKV, QKV_BIAS, Keys
from zoo.hf._layers import SLIDING, layered, types_of, used_window_config
from zoo.hf._llama_like import LlamaLike
from zoo.hf._rope_by_layer import SomeRoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Llama(LlamaLike):
    """Llama, Llama 2, Llama 3 and all that share their config: Yi, DeepSeek LLM, SmolLM2. Touvron et al. 2023,
    arXiv:2302.13971."""

    model_types: ClassVar[tuple[str, ...]] = ("llama",)
    preference: ClassVar[int] = 0
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        # transformers does not read them.
        config.ignore("is_llama_config", "max_sequence_length", "transformers.js_config")
        return super().spec(config)


class Arcee(Llama):
    """Arcee's AFM: Llama with squared ReLU. Arcee AI 2025, https://huggingface.co/arcee-ai/AFM-4.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("arcee",)
    preference: ClassVar[int] = 1
    gated: ClassVar[bool] = False


class Helium(Llama):
    """Helium 1: Llama with interleaved RoPE, and heads that are as wide as the stream together. Kyutai 2025,
    https://kyutai.org/2025/04/30/helium.html."""

    model_types: ClassVar[tuple[str, ...]] = ("helium",)
    preference: ClassVar[int] = 1
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {**Llama.mixer_keys, "attention_bias": QKV_BIAS}


class InternLM3(Llama):
    """InternLM 3 and IQuest-Coder, Llama under names of their own. Shanghai AI Laboratory 2025,
    https://huggingface.co/internlm/internlm3-8b-instruct; IQuest Lab 2026,
    https://huggingface.co/IQuestLab/IQuest-Coder-V1-40B-Instruct."""

    model_types: ClassVar[tuple[str, ...]] = ("internlm3", "iquestcoder")
    preference: ClassVar[int] = 3


class Jais2(LlamaLike):
    """Llama with LayerNorm, biases, and an FFN of squared ReLU. Inception 2025,
    https://huggingface.co/inceptionai/Jais-2-8B-Chat."""

    model_types: ClassVar[tuple[str, ...]] = ("jais2",)
    preference: ClassVar[int] = 2
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}


class SeedOss(Llama):
    """Llama with biases on queries, keys and values, and dropout on the branches. ByteDance Seed 2025,
    https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("seed_oss",)
    preference: ClassVar[int] = 1
    block_keys: ClassVar[Keys] = {"residual_dropout": DROPOUT}

    def mixer(self, config: Config) -> SpecJson:
        biases = [*QKV] * config["attention_bias"] + ["o"] * config["attention_out_bias"]
        return {**super().mixer(config), "bias": biases}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        bias = attention(layer).bias
        return {**super().block_config(layer), "attention_bias": "q" in bias, "attention_out_bias": "o" in bias}


class SmolLM3(SomeRoPE, Llama):
    """Llama without positions on some layers, and windows on some. Bakouch et al. 2025,
    https://huggingface.co/blog/smollm3."""

    model_types: ClassVar[tuple[str, ...]] = ("smollm3",)
    preference: ClassVar[int] = 1

    def spec(self, config: Config) -> SpecJson:
        config.ignore("no_rope_layer_interval", "max_window_layers")  # at most, they say what lists are by default
        types, rotary = types_of(config), config["no_rope_layers"]  # 1 where there is RoPE, despite the name
        if len(rotary) != len(types):
            raise UnsupportedError("no_rope_layers", f"has {len(rotary)} layers of {len(types)}")
        window = config["sliding_window"]
        if SLIDING in types and (window is None or not config["use_sliding_window"]):
            raise UnsupportedError("layer_types", f"{SLIDING} needs use_sliding_window and sliding_window")
        config.ignore("use_sliding_window", "sliding_window")
        kinds = [
            ["window"] * (kind == SLIDING) + ["nope"] * (not turned) for kind, turned in zip(types, rotary, strict=True)
        ]
        edits = {"nope": {"mixer.position": "nope"}, "window": {"mixer.window": window}}
        return {**super().spec(config), **layered(kinds, edits)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        rotary = [int(turns(layer)) for layer in spec.layers]
        return {**super().config(spec), "no_rope_layers": rotary, **used_window_config(spec)}
