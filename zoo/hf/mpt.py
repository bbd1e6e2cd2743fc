"""MPT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, linears, norm_weights
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import fused_qkv
from zoo.hf._keyed import Keyed
from zoo.hf._keys import Keys
from zoo.hf._pairs import Pair, same
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

UNREAD = (
    "emb_pdrop", "embedding_fraction", "expansion_ratio", "init_config", "init_device", "learned_pos_emb",
    "logit_scale", "max_seq_len", "no_bias", "norm_type", "resid_pdrop", "tokenizer_name", "verbose",
)  # fmt: skip
"""Keys that transformers does not read, or only for the longest text."""
ALWAYS = {"alibi": True, "alibi_bias_max": 8, "attn_pdrop": 0, "attn_type": "multihead_attention"}
NEVER = ("attn_uses_sequence_id", "prefix_lm", "qk_ln")


class MPT(Keyed):
    """ALiBi, LayerNorm and no biases at all. MosaicML 2023, https://www.databricks.com/blog/mpt-7b."""

    model_types: ClassVar[tuple[str, ...]] = ("mpt",)
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "n_layers": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
    }
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "bias": False}
    mixer_keys: ClassVar[Keys] = {"n_heads": "heads"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD)
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        own = config["attn_config"]
        for key, wanted in {**ALWAYS, **dict.fromkeys(NEVER, False)}.items():
            if own.get(key, wanted) != wanted:
                raise UnsupportedError(f"attn_config.{key}", f"{own[key]!r} cannot be converted, only {wanted!r}")
        return {**super().mixer(config), "scale": own["softmax_scale"], "clip_qkv": own["clip_qkv"] or None}

    def position(self, config: Config) -> SpecJson:
        return {"kind": "alibi"}

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "gelu", "d_ff": 4 * config["d_model"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        own = {"softmax_scale": mixer.scale, "clip_qkv": mixer.clip_qkv}
        return {**super().block_config(layer), "attn_config": own}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "transformer.wte.weight")
        yield from norm_weights(spec.block.norm, "norm", "transformer.norm_f")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"transformer.blocks.{i}"
            yield from norm_weights(layer.norm, f"{ours}.mixer_residual.norm_in", f"{theirs}.norm_1")
            yield from norm_weights(layer.norm, f"{ours}.ffn_residual.norm_in", f"{theirs}.norm_2")
            yield from fused_qkv(attention(layer), f"{ours}.mixer", f"{theirs}.attn.Wqkv", 1)
            yield from linears(f"{ours}.mixer", f"{theirs}.attn", {"o": "out_proj"}, ())
            yield from linears(f"{ours}.ffn", f"{theirs}.ffn", {"up": "up_proj", "down": "down_proj"}, ())
