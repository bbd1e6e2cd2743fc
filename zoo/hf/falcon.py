"""Falcon 7B, 40B and 180B, Falcon RW, Falcon 2 11B."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import FusedQKV
from zoo.hf._keyed import PRE
from zoo.hf._keys import BIAS, WIDTH, Keys
from zoo.positions.alibi import ALiBi
from zoo.settings.edits import SpecJson


class Falcon(FusedQKV):
    """Almazrouei et al. 2023, arXiv:2311.16867."""

    model_types: ClassVar[tuple[str, ...]] = ("falcon",)

    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "bias": BIAS}
    activation_key: ClassVar[str] = "activation"
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {"ffn_hidden_size": WIDTH, "bias": "bias"}
    table_name: ClassVar[str] = "transformer.word_embeddings"
    final_norm_name: ClassVar[str] = "transformer.ln_f"
    layers_name: ClassVar[str] = "transformer.h"
    mixer_name: ClassVar[str] = "self_attention"
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}

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
        return _alibi(config) if config["alibi"] else super().position(config)

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        heads, kv_heads, _ = attention(layer).sizes()
        return {**super().block_config(layer), **_layout(layer.topology, heads, kv_heads)}

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
"""Our names of a block's norms and theirs."""


def _topology(config: Config) -> str:
    """Combinations of the three switches that transformers can run."""
    parallel, norms = config["parallel_attn"], config["num_ln_in_parallel_attn"]
    if config["new_decoder_architecture"]:
        if not parallel:
            raise UnsupportedError("parallel_attn", "the new architecture runs its branches side by side")
        norms = 2 if norms is None else norms
        if norms not in (1, 2):
            raise UnsupportedError("num_ln_in_parallel_attn", f"{norms} norms in a block cannot be converted")
        return "parallel" if norms == 1 else "parallel_two_norms"
    if parallel and norms == 2:
        raise UnsupportedError("num_ln_in_parallel_attn", "the old architecture has one norm in a parallel block")
    return "parallel" if parallel else "serial"


def _kv_heads(config: Config) -> int:
    heads, kv_heads = config["num_attention_heads"], config["num_kv_heads"]
    multi_query = config["multi_query"]
    if config["new_decoder_architecture"]:
        return int(kv_heads)
    if not multi_query and kv_heads != heads:
        raise UnsupportedError("num_kv_heads", f"{kv_heads} of {heads} heads need the new architecture")
    return 1 if multi_query else int(heads)


def _layout(topology: str, heads: int, kv_heads: int) -> ConfigJson:
    """The switches for a topology and a number of kv heads."""
    new = topology == "parallel_two_norms" or kv_heads not in (1, heads)
    return {
        "new_decoder_architecture": new,
        "parallel_attn": topology != "serial",
        "num_ln_in_parallel_attn": (2 if topology == "parallel_two_norms" else 1) if new else None,
        "multi_query": kv_heads == 1,
        "num_kv_heads": kv_heads if new else heads,
    }


def _alibi(config: Config) -> SpecJson:
    """Falcon's biases are rounded to bfloat16 and divided by √d with the scores. transformers' eager attention adds
    them twice, once with the mask."""
    factor = 2.0 if config.get("attn_implementation") == "eager" else 1.0
    return {"kind": "alibi", "scaled": True, "rounded": True, "factor": factor}
