"""SantaCoder and StarCoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention, linears
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import UNREAD, LearnedPositions, OpenAILike, ends, fused_qkv
from zoo.hf._pairs import Pair, layernorm
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class BigCode(LearnedPositions, OpenAILike):
    """GPT-2 with one head of keys and values. Ben Allal et al. 2023, arXiv:2301.03988; Li et al. 2023,
    arXiv:2305.06161."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_bigcode",)

    def spec(self, config: Config) -> SpecJson:
        # Precision and code of the softmax, what follows from others, and what no version reads any more.
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

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from ends(spec)
        for i, layer in enumerate(spec.layers):
            ours, theirs, mixer = f"blocks.{i}", f"transformer.h.{i}", attention(layer)
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.ln_2")
            groups = 1 if mixer.kv_heads == 1 else mixer.heads
            yield from fused_qkv(mixer, f"{ours}.mixer", f"{theirs}.attn.c_attn", groups)
            names = {"mixer.o": "attn.c_proj", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}
            yield from linears(ours, theirs, names, names)
