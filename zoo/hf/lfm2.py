"""LFM 2, dense and with experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson, Key, Keys, read, write
from zoo.hf._family import Pair, both, convolution, fused_layers
from zoo.hf._ffn import EXPERT_SIZES
from zoo.hf._layered import LINEAR, Hybrid
from zoo.hf._layers import PROJECTIONS, dense, expect, types_of
from zoo.mixers import Mixer
from zoo.mixers.short_conv import GatedShortConv
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

CONV = "conv"


class Lfm2(Hybrid):
    """LFM 2: gated short convolutions in most layers, attention with a QK norm for each head in the others. Liquid AI
    2025, arXiv:2511.23404."""

    model_types: ClassVar[tuple[str, ...]] = ("lfm2",)
    final_norm_name: ClassVar[str] = "model.embedding_norm"
    qk_norm: ClassVar[SpecJson | None] = {}
    has_head_dim: ClassVar[bool] = False
    norm_keys: ClassVar[Keys] = {"norm_eps": "eps"}
    mixer_keys: ClassVar[Keys] = {"num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "operator_norm",
        "ffn_residual.norm_in": "ffn_norm",
    }
    mixer_names: ClassVar[Mapping[str, str]] = {**PROJECTIONS, "o": "out_proj"}
    qk_norm_names: ClassVar[Mapping[str, str]] = {"q": "q_layernorm", "k": "k_layernorm"}
    ffn_name: ClassVar[str] = "feed_forward"
    ffn_names: ClassVar[Mapping[str, str]] = {"gate": "w1", "up": "w3", "down": "w2"}
    state_class: ClassVar[type[Mixer]] = GatedShortConv
    state_fixed: ClassVar[SpecJson] = {"kind": "short_conv"}
    state_keys: ClassVar[Keys] = {"conv_L_cache": "width", "conv_bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        # The default of layer_types, and keys of published configs that transformers does not read.
        config.ignore("full_attn_idxs", "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale")
        config.ignore("block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init")
        config.ignore("num_heads")
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[LINEAR] * (kind == CONV) for kind in types_of(config, CONV)]

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "swiglu", "d_ff": _width(config)}

    def state(self, config: Config) -> SpecJson:
        return {**self.state_fixed, **read(self.state_keys, config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        types = [CONV if kind == LINEAR else kind for kind in arguments["layer_types"]]
        return {**arguments, "layer_types": types}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        return {"intermediate_size": dense(layer).width, "block_auto_adjust_ff_dim": False}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.mixer, GatedShortConv):
            return _conv_weights(layer.mixer, ours, theirs.removesuffix("self_attn") + CONV)
        return super().mixer_weights(layer, ours, theirs)


def _width(config: Config) -> int:
    """Hidden features: `intermediate_size`; with `block_auto_adjust_ff_dim` ⅔ of it, times a factor, rounded up."""
    width, factor, multiple = (
        config[key] for key in ("intermediate_size", "block_ffn_dim_multiplier", "block_multiple_of")
    )
    if not config["block_auto_adjust_ff_dim"]:
        return int(width)
    width = int(2 * width / 3)
    return int(width if factor is None else multiple * -(int(factor * width) // -multiple))


def _conv_weights(mixer: GatedShortConv, ours: str, theirs: str) -> Iterator[Pair]:
    features = expect(mixer.features, int, "mixer.features")
    yield from fused_layers(ours, ("before", "after", "v"), f"{theirs}.in_proj", [features] * 3, bias=mixer.bias)
    yield from convolution(f"{ours}.conv", f"{theirs}.conv", features, mixer.width, bias=mixer.bias)
    yield from both(f"{ours}.o", f"{theirs}.out_proj", bias=mixer.bias)


class Lfm2Moe(Lfm2):
    """LFM 2 with sigmoid experts after some dense layers. Liquid AI 2025, arXiv:2511.23404."""

    model_types: ClassVar[tuple[str, ...]] = ("lfm2_moe",)
    experts_class: ClassVar[type[MoE] | tuple[()]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "shared_experts": 0, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "norm_topk_prob": "normalise",
        "routed_scaling_factor": Key("scale", float),
        "use_expert_bias": Key("bias_rate", lambda there: 1e-3 if there else None, lambda rate: rate is not None),
    }
    balance_name: ClassVar[str] = "expert_bias"
    expert_modules: ClassVar[Sequence[str]] = ("w1", "w3", "w2")

    def sparse(self, config: Config) -> list[bool]:
        return [i >= config["num_dense_layers"] for i in range(config["num_hidden_layers"])]

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "swiglu", **read(self.ffn_keys, config)}

    def experts(self, config: Config) -> SpecJson:
        return {**self.expert_fixed, **read(self.expert_keys, config)}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"num_dense_layers": sparse.index(True) if any(sparse) else len(sparse)}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        sparse = isinstance(layer.ffn, DeepSeekMoE)
        return write(self.expert_keys if sparse else self.ffn_keys, layer.ffn, "ffn")
