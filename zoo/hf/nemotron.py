"""Nemotron-4 and Minitron; Nemotron-H, Nemotron Nano 2 and Nemotron 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._dense import Dense
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import BIAS, DROPOUT, WIDTH, Config, ConfigJson, Key, Keys, read, write
from zoo.hf._family import Family, Pair, both, same
from zoo.hf._ffn import activation, ffn, plain_activation, theirs_by_name
from zoo.hf._keyed import LlamaLike
from zoo.hf._layered import LINEAR
from zoo.hf._layers import FULL, attention_weights, expect, norm_eps, pattern
from zoo.hf.mamba import mamba2_weights
from zoo.mixers.attention import Attention
from zoo.mixers.mamba2 import Mamba2
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Nemotron(LlamaLike):
    """Nemotron-4 and Minitron: Llama with LayerNorm (gains stored minus one), partial RoPE and squared ReLU. Parmar et
    al. 2024, arXiv:2402.16819."""

    model_types: ClassVar[tuple[str, ...]] = ("nemotron",)
    partial_rotary: ClassVar[bool] = True
    norm_keys: ClassVar[Keys] = {"norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}


MOE, MLP = "moe", "mlp"
ATTENTION_KEYS: Keys = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "attention_dropout": DROPOUT,
}
MAMBA_KEYS: Keys = {
    "mamba_num_heads": "heads",
    "mamba_head_dim": Key("head_dim", resolved="features"),
    "ssm_state_size": "state",
    "n_groups": "groups",
    "conv_kernel": "conv",
    "use_conv_bias": "conv_bias",
    "use_bias": "bias",
    "chunk_size": "chunk",
    "time_step_min": Key("step_min", float),
}
MLP_KEYS: Keys = {"intermediate_size": WIDTH, "mlp_bias": "bias"}
EXPERT_KEYS: Keys = {
    "moe_intermediate_size": WIDTH,
    "n_routed_experts": "experts",
    "num_experts_per_tok": "top_k",
    "moe_shared_expert_intermediate_size": Key("shared_d_ff", resolved="shared_width"),
    "mlp_bias": "shared_bias",
    "n_group": "groups",
    "topk_group": "top_groups",
    "norm_topk_prob": "normalise",
    "routed_scaling_factor": Key("scale", float),
    "moe_latent_size": "latent",
}


class NemotronH(Family):
    """Nemotron-H, Nemotron Nano 2 and Nemotron 3: each layer has one branch, which is Mamba-2, attention without
    positions, an FFN, or experts. NVIDIA 2025, arXiv:2504.03624 and 2512.20856."""

    model_types: ClassVar[tuple[str, ...]] = ("nemotron_h",)

    def spec(self, config: Config) -> SpecJson:
        # Initial values and precision; keys that transformers does not read, or reads only to check others.
        config.ignore("time_step_max", "time_step_floor", "time_step_limit", "rescale_prenorm_residual", "expand")
        config.ignore("residual_in_fp32", "num_logits_to_keep", "mamba_ssm_cache_dtype", "use_mamba_kernels")
        config.ignore("max_position_embeddings", "hidden_dropout", "mamba_proj_bias", "moe_shared_expert_overlap")
        config.ignore("num_nextn_predict_layers", "mtp_layers_block_type", "output_router_logits", "sliding_window")
        config.ignore("attention_bias")
        config.ignore("rms_norm_eps")  # of multi-token prediction
        config.ignore("tie_word_embeddings")  # the head is never tied
        kinds = config["layers_block_type"]
        blocks: dict[str, SpecJson] = {
            FULL: {"mixer": {"kind": "attention", **read(ATTENTION_KEYS, config), "position": "nope"}},
            MLP: {"mixer": "none", "ffn": {**ffn(config, "mlp_hidden_act", gated=False), **read(MLP_KEYS, config)}},
            MOE: {"mixer": "none", "ffn": self._experts(config)},
        }
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": len(kinds),
            "tie_embeddings": False,
            "block": {
                "norm": {"kind": "rmsnorm", "eps": config["layer_norm_epsilon"]},
                "mixer": self._mamba(config),
                "ffn": "none",
            },
            **pattern([BASE if kind == LINEAR else kind for kind in kinds], blocks),
        }

    def _mamba(self, config: Config) -> SpecJson:
        return {
            "kind": "mamba2",
            **read(MAMBA_KEYS, config),
            "activation": plain_activation(config, "mamba_hidden_act"),
            "head_norm": {"kind": "rmsnorm", "eps": config["layer_norm_epsilon"]},
        }

    def _experts(self, config: Config) -> SpecJson:
        act = plain_activation(config, "mlp_hidden_act")
        if config["moe_latent_size"] and config["mlp_bias"]:
            raise UnsupportedError(
                "mlp_bias", "must be false with moe_latent_size: biases of the latent projections are not supported"
            )
        fixed = {"kind": "deepseek_moe", "shared_experts": 1, "balance_loss": 0.0}
        return {**fixed, "activation": act, **read(EXPERT_KEYS, config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "layers_block_type": [_kind(layer) for layer in spec.layers],
            "layer_norm_epsilon": norm_eps(spec.layers[0]),
        }
        for layer in spec.layers:
            arguments |= _layer_config(layer)
        return arguments

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "model.embeddings.weight")
        yield same("norm.gain", "model.norm_f.weight")
        yield same("head.weight", "lm_head.weight")
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"model.layers.{i}"
            branch = "ffn" if layer.mixer.absent else "mixer"
            yield same(f"{ours}.{branch}_residual.norm_in.gain", f"{theirs}.norm.weight")
            yield from _weights(layer, f"{ours}.{branch}", f"{theirs}.mixer")


def _kind(layer: BlockSpec) -> str:
    """The layer's type in the config. Raises UnsupportedError for a layer with two branches."""
    if not layer.mixer.absent:
        if not layer.ffn.absent:
            raise UnsupportedError("ffn", "Nemotron-H layers have a mixer or an FFN, not both")
        return FULL if isinstance(layer.mixer, Attention) else LINEAR
    return MOE if isinstance(layer.ffn, DeepSeekMoE) else MLP


def _layer_config(layer: BlockSpec) -> ConfigJson:
    """Arguments of the config class that follow from a layer. Raises UnsupportedError for another kind of part."""
    kind, names = _kind(layer), theirs_by_name(gated=False)
    if kind == FULL:
        return write(ATTENTION_KEYS, expect(layer.mixer, Attention, "mixer"))
    if kind == LINEAR:
        mixer = expect(layer.mixer, Mamba2, "mixer")
        return {**write(MAMBA_KEYS, mixer), "mamba_hidden_act": names[mixer.activation]}
    if kind == MLP:
        return {
            **write(MLP_KEYS, expect(layer.ffn, Dense, "ffn")),
            "mlp_hidden_act": activation(layer.ffn, gated=False),
        }
    moe = expect(layer.ffn, DeepSeekMoE, "ffn")
    if moe.activation not in names:
        raise UnsupportedError("ffn.activation", f"{moe.activation} has no counterpart")
    return {**write(EXPERT_KEYS, moe), "mlp_hidden_act": names[moe.activation]}


def _weights(layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
    """Weights of the layer's branch."""
    if isinstance(layer.mixer, Mamba2):
        yield from mamba2_weights(layer.mixer, ours, theirs)
    elif isinstance(layer.mixer, Attention):
        yield from attention_weights(layer.mixer, ours, theirs)
    elif isinstance(layer.ffn, DeepSeekMoE):
        moe = layer.ffn
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield same(f"{ours}.router.selection_bias", f"{theirs}.gate.e_score_correction_bias")
        for part in ("up", "down"):
            yield same(f"{ours}.experts.{part}.weight", f"{theirs}.experts.{part}_proj")
            yield from both(f"{ours}.shared.{part}", f"{theirs}.shared_experts.{part}_proj", bias=moe.shared_bias)
        for part, name in (("down", "fc1"), ("up", "fc2")) if moe.latent is not None else ():
            yield same(f"{ours}.latent_{part}.weight", f"{theirs}.{name}_latent_proj.weight")
    else:
        bias = expect(layer.ffn, Dense, "ffn").bias
        for part in ("up", "down"):
            yield from both(f"{ours}.{part}", f"{theirs}.{part}_proj", bias=bias)
