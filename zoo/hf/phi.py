"""Phi-1 to Phi-4, Phi-3.5-MoE, and Persimmon, whose block is that of Phi-1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import BIAS, DROPOUT, Config, ConfigJson, Keys
from zoo.hf._family import Pair, fused_layers, same
from zoo.hf._gpt import FusedQKV
from zoo.hf._keyed import LlamaLike
from zoo.hf._layers import PROJECTIONS, attention, dense, fused_gate_up
from zoo.hf._rope import FRACTION, rope
from zoo.hf.mistral import Mistral, Mixtral
from zoo.settings.edits import SpecJson


class LayerNormRoPE(LlamaLike):
    """Llama with LayerNorm, an optional QK norm for each head, partial RoPE, biases, and an ungated FFN."""

    has_head_dim: ClassVar[bool] = False
    final_norm_name: ClassVar[str] = "model.final_layernorm"
    partial_rotary: ClassVar[bool] = True
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": True}
    gated: ClassVar[bool] = False
    ffn_fixed: ClassVar[SpecJson] = {"bias": True}
    qk_norm: ClassVar[SpecJson | None] = {}
    qk_norm_key: ClassVar[str | None] = "qk_layernorm"
    qk_norm_names: ClassVar[Mapping[str, str]] = {"q": "q_layernorm", "k": "k_layernorm"}

    def position(self, config: Config) -> SpecJson:
        position, head_dim = super().position(config), self.head_dim(config)
        if (cut := int(head_dim * position["fraction"])) % 2:
            raise UnsupportedError(FRACTION, f"{cut} of a head's {head_dim} features cannot be rotated")
        return position


class Phi(LayerNormRoPE):
    """Phi-1, Phi-1.5 and Phi-2: x + attention(h) + mlp(h), h = LayerNorm(x), with partial RoPE, and biases also on the
    logits. Li et al. 2023, arXiv:2309.05463."""

    model_types: ClassVar[tuple[str, ...]] = ("phi",)
    model_keys: ClassVar[Keys] = {**LlamaLike.model_keys, "embd_pdrop": "embedding_dropout"}
    model_fixed: ClassVar[SpecJson] = {"head_bias": True}
    block_keys: ClassVar[Keys] = {"resid_pdrop": DROPOUT}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "input_layernorm"}
    mixer_names: ClassVar[Mapping[str, str]] = {**PROJECTIONS, "o": "dense"}
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "fc1", "down": "fc2"}


class Phi3(Mistral):
    """Phi-3 and Phi-4: Mistral with queries, keys and values in one matrix, and gate and up in one. Abdin et al. 2024,
    arXiv:2404.14219."""

    model_types: ClassVar[tuple[str, ...]] = ("phi3",)
    partial_rotary: ClassVar[bool] = True
    block_keys: ClassVar[Keys] = {"resid_pdrop": DROPOUT}

    def block(self, config: Config) -> SpecJson:
        config.ignore("embd_pdrop", "full_attn_mod", "interpolate_factor")  # transformers does not read them
        config.ignore("original_max_position_embeddings")  # only LongRoPE reads it
        return super().block(config)

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        """RoPE's arguments. LongRoPE's original length is stored beside its other settings."""
        length = getattr(getattr(attention(layer).position, "scaling", None), "original_length", None)
        beside = {} if length is None else {"original_max_position_embeddings": length}
        return {**super().position_config(layer), **beside}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        heads, kv_heads, head_dim = attention(layer).sizes()
        sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
        yield from fused_layers(ours, "qkv", f"{theirs}.qkv_proj", sizes)
        yield same(f"{ours}.o.weight", f"{theirs}.o_proj.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return fused_gate_up(dense(layer), ours, theirs)


FACTORS = ("short_mscale", "long_mscale")


class PhiMoE(Mixtral):
    """Phi-3.5-MoE: Mixtral with LayerNorm, biases, LongRoPE, and SparseMixer's routing. Abdin et al. 2024,
    arXiv:2404.14219; Liu et al. 2024, arXiv:2409.12136.

    Beyond the original length ours divides angles by LongRoPE's long factors, as transformers 4 did; transformers 5
    keeps the short ones at any length.
    """

    model_types: ClassVar[tuple[str, ...]] = ("phimoe",)
    # Noise in training, and a length that only LongRoPE reads.
    ignored: ClassVar[tuple[str, ...]] = ("input_jitter_noise", "original_max_position_embeddings")
    has_head_dim: ClassVar[bool] = False
    model_keys: ClassVar[Keys] = {**Mixtral.model_keys, "lm_head_bias": "head_bias"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**Mixtral.mixer_keys, "attention_bias": BIAS}
    expert_keys: ClassVar[Keys] = {**Mixtral.expert_keys, "router_jitter_noise": "margin"}
    router_name: ClassVar[str] = "router"

    def ffn(self, config: Config) -> SpecJson:
        config.only("num_experts_per_tok", 2)  # others are not read
        return super().ffn(config)

    def position(self, config: Config) -> SpecJson:
        parameters = config["rope_parameters"]
        position = rope(config, self.head_dim(config), unread=(*FACTORS, "attention_factor"))
        if position["scaling"] is None:
            return position
        short, long = (float(parameters[name]) for name in FACTORS)
        if position["scaling"]["kind"] != "longrope" or short != long:
            reason = "only LongRoPE with equal short_mscale and long_mscale can be converted"
            raise UnsupportedError("rope_parameters.rope_type", reason)
        return {**position, "scaling": {**position["scaling"], "attention_factor": short}}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments, scaling = super().position_config(layer), getattr(attention(layer).position, "scaling", None)
        factors = {} if scaling is None else dict.fromkeys(FACTORS, scaling.magnitude)
        return {**arguments, "rope_parameters": {**arguments["rope_parameters"], **factors}}


class Persimmon(FusedQKV, LayerNormRoPE):
    """Persimmon: LayerNorm, also on each head's queries and keys, partial RoPE, an FFN of squared ReLU. Adept 2023,
    https://huggingface.co/adept/persimmon-8b-base."""

    model_types: ClassVar[tuple[str, ...]] = ("persimmon",)
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "attention_dropout": DROPOUT}
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "dense_h_to_4h", "down": "dense_4h_to_h"}

    def block(self, config: Config) -> SpecJson:
        config.only("hidden_dropout", 0.0)  # transformers applies it to the FFN alone
        return super().block(config)
