"""MPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import FusedQKV
from zoo.hf._keys import Keys
from zoo.mixers.attention import Attention
from zoo.settings.edits import SpecJson

UNREAD = (
    "emb_pdrop", "embedding_fraction", "expansion_ratio", "init_config", "init_device", "learned_pos_emb",
    "logit_scale", "max_seq_len", "no_bias", "norm_type", "resid_pdrop", "tokenizer_name", "verbose",
)  # fmt: skip
"""Keys that transformers does not read, or only for the longest text."""
ALWAYS = {"alibi": True, "alibi_bias_max": 8, "attn_pdrop": 0, "attn_type": "multihead_attention"}
NEVER = ("attn_uses_sequence_id", "prefix_lm", "qk_ln")


class MPT(FusedQKV):
    """ALiBi, LayerNorm and no biases at all. MosaicML 2023, https://www.databricks.com/blog/mpt-7b."""

    model_types: ClassVar[tuple[str, ...]] = ("mpt",)
    ignored: ClassVar[tuple[str, ...]] = UNREAD
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "d_model": "d_model",
        "n_layers": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
    }
    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "bias": False}
    mixer_keys: ClassVar[Keys] = {"n_heads": "heads"}
    fixed_position: ClassVar[SpecJson | None] = {"kind": "alibi"}
    table_name: ClassVar[str] = "transformer.wte"
    final_norm_name: ClassVar[str] = "transformer.norm_f"
    layers_name: ClassVar[str] = "transformer.blocks"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "norm_1", "ffn_residual.norm_in": "norm_2"}
    mixer_name: ClassVar[str] = "attn"
    fused_name: ClassVar[str] = "Wqkv"
    mixer_names: ClassVar[Mapping[str, str]] = {"o": "out_proj"}
    ffn_name: ClassVar[str] = "ffn"

    def mixer(self, config: Config) -> SpecJson:
        own = config["attn_config"]
        for key, wanted in {**ALWAYS, **dict.fromkeys(NEVER, False)}.items():
            if own.get(key, wanted) != wanted:
                raise UnsupportedError(f"attn_config.{key}", f"{own[key]!r} cannot be converted, only {wanted!r}")
        return {**super().mixer(config), "scale": own["softmax_scale"], "clip_qkv": own["clip_qkv"] or None}

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "gelu", "d_ff": 4 * config["d_model"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        own = {"softmax_scale": mixer.scale, "clip_qkv": mixer.clip_qkv}
        return {**super().block_config(layer), "attn_config": own}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def stretches(self, mixer: Attention) -> int:
        return 1
