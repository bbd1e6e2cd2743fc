"""Families with one matrix for queries, keys and values: BLOOM, Falcon, GPT-NeoX, MPT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import BIAS, WIDTH, Config, ConfigJson, Keys, either
from zoo.hf._family import Pair
from zoo.hf._gpt import FusedQKV
from zoo.hf._keyed import PRE, Keyed
from zoo.hf._layers import attention, norm_weights
from zoo.mixers.attention import Attention
from zoo.positions.alibi import ALiBi
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class _BloomNames(FusedQKV):
    """Names of BLOOM's weights, which Falcon shares."""

    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    table_name: ClassVar[str] = "transformer.word_embeddings"
    final_norm_name: ClassVar[str] = "transformer.ln_f"
    layers_name: ClassVar[str] = "transformer.h"
    mixer_name: ClassVar[str] = "self_attention"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}


class Bloom(_BloomNames):
    """BLOOM. BigScience 2022, arXiv:2211.05100."""

    model_types: ClassVar[tuple[str, ...]] = ("bloom",)
    # Keys of published configs that transformers does not read.
    ignored: ClassVar[tuple[str, ...]] = (
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "n_inner",
        "offset_alibi",
        "seq_length",
        "skip_bias_add",
        "skip_bias_add_qkv",
    )
    model_keys: ClassVar[Keys] = {
        "vocab_size": "vocab_size",
        "hidden_size": "d_model",
        "n_layer": "n_layers",
        "tie_word_embeddings": "tie_embeddings",
    }
    model_fixed: ClassVar[SpecJson] = {"embedding_norm": True}
    block_keys: ClassVar[Keys] = {
        "hidden_dropout": "dropout",
        "apply_residual_connection_post_layernorm": either("norm_placement", "normed", "pre"),
    }
    mixer_keys: ClassVar[Keys] = {"n_head": "heads", "attention_dropout": "dropout"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    fixed_position: ClassVar[SpecJson | None] = {"kind": "alibi"}

    def spec(self, config: Config) -> SpecJson:
        if config["slow_but_exact"] and config["pretraining_tp"] > 1:
            reason = (
                "not supported with pretraining_tp above 1: transformers then omits the biases of output projections"
            )
            raise UnsupportedError("slow_but_exact", reason)
        return super().spec(config)

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "gelu", "approximate": "tanh", "d_ff": 4 * config["hidden_size"], "bias": True}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def ends(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().ends(spec)
        yield from norm_weights(spec.block.norm, "embedding_norm", "transformer.word_embeddings_layernorm")


class Falcon(_BloomNames):
    """Falcon 7B, 40B and 180B, Falcon RW, Falcon 2 11B. Almazrouei et al. 2023, arXiv:2311.16867."""

    model_types: ClassVar[tuple[str, ...]] = ("falcon",)

    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "bias": BIAS}
    activation_key: ClassVar[str] = "activation"
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"ffn_hidden_size": WIDTH, "bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)
        config.only("attention_dropout", 0.0)
        config.ignore("apply_residual_connection_post_layernorm", "ff_factor")  # transformers does not read them
        config.ignore("max_position_embeddings", "rope_parameters")
        return super().spec(config)

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "topology": _topology(config)}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "kv_heads": _kv_heads(config)}

    def position(self, config: Config) -> SpecJson:
        if not config["alibi"]:
            return super().position(config)
        # Biases are rounded to bfloat16 and divided by √d with the scores. transformers' eager attention adds them
        # twice, once with the mask.
        factor = 2.0 if config.get("attn_implementation") == "eager" else 1.0
        return {"kind": "alibi", "scaled": True, "rounded": True, "factor": factor}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        heads, kv_heads, _ = attention(layer).sizes()
        has_two_norms = layer.topology == "parallel_two_norms"
        new = has_two_norms or kv_heads not in (1, heads)
        return {
            **super().block_config(layer),
            "new_decoder_architecture": new,
            "parallel_attn": layer.topology != "serial",
            "num_ln_in_parallel_attn": (2 if has_two_norms else 1) if new else None,
            "multi_query": kv_heads == 1,
            "num_kv_heads": kv_heads if new else heads,
        }

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        position = attention(layer).position
        if isinstance(position, ALiBi):
            return {"alibi": True, "attn_implementation": "eager" if position.factor > 1 else "sdpa"}
        return {"alibi": False, **super().position_config(layer)}

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return NORMS[layer.topology]


NORMS = {
    "serial": PRE,
    "parallel": {"mixer_residual.norm_in": "input_layernorm"},
    "parallel_two_norms": {"mixer_residual.norm_in": "ln_attn", "ffn_residual.norm_in": "ln_mlp"},
}
"""transformers' names of a block's norms, keyed by ours, for each topology."""


def _topology(config: Config) -> str:
    """Topology of the three switches. Raises UnsupportedError for combinations that transformers cannot run."""
    parallel, norms = config["parallel_attn"], config["num_ln_in_parallel_attn"]
    if config["new_decoder_architecture"]:
        if not parallel:
            raise UnsupportedError("parallel_attn", "must be true with new_decoder_architecture")
        norms = 2 if norms is None else norms
        if norms not in (1, 2):
            raise UnsupportedError("num_ln_in_parallel_attn", f"must be 1 or 2, not {norms}")
        return "parallel" if norms == 1 else "parallel_two_norms"
    if parallel and norms == 2:
        raise UnsupportedError("num_ln_in_parallel_attn", "2 needs new_decoder_architecture in a parallel block")
    return "parallel" if parallel else "serial"


def _kv_heads(config: Config) -> int:
    heads, kv_heads = config["num_attention_heads"], config["num_kv_heads"]
    multi_query = config["multi_query"]
    if config["new_decoder_architecture"]:
        return int(kv_heads)
    if not multi_query and kv_heads != heads:
        raise UnsupportedError(
            "num_kv_heads", f"{kv_heads} kv heads for {heads} query heads need new_decoder_architecture"
        )
    return 1 if multi_query else int(heads)


class GPTNeoX(FusedQKV):
    """GPT-NeoX, and Pythia, which shares its config. Black et al. 2022, arXiv:2204.06745."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt_neox",)

    model_keys: ClassVar[Keys] = {**Keyed.model_keys, "hidden_dropout": "embedding_dropout"}
    block_keys: ClassVar[Keys] = {
        "hidden_dropout": "dropout",
        "use_parallel_residual": either("topology", "parallel_two_norms", "serial"),
    }
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "attention_dropout": "dropout",
        "attention_bias": BIAS,
    }
    partial_rotary: ClassVar[bool] = True
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}
    table_name: ClassVar[str] = "gpt_neox.embed_in"
    final_norm_name: ClassVar[str] = "gpt_neox.final_layer_norm"
    layers_name: ClassVar[str] = "gpt_neox.layers"
    mixer_name: ClassVar[str] = "attention"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "is_decoder")
        return super().spec(config)


UNREAD = (
    "emb_pdrop", "embedding_fraction", "expansion_ratio", "init_config", "init_device", "learned_pos_emb",
    "logit_scale", "max_seq_len", "no_bias", "norm_type", "resid_pdrop", "tokenizer_name", "verbose",
)  # fmt: skip
"""Keys that transformers does not read, or reads only for the maximum length."""
ALWAYS = {"alibi": True, "alibi_bias_max": 8, "attn_pdrop": 0, "attn_type": "multihead_attention"}
NEVER = ("attn_uses_sequence_id", "prefix_lm", "qk_ln")


class MPT(FusedQKV):
    """MPT: ALiBi, LayerNorm and no biases. MosaicML 2023, https://www.databricks.com/blog/mpt-7b."""

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
