"""Jamba."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation
from zoo.hf._pairs import Pair, same
from zoo.hf._qwen_experts import QwenExperts
from zoo.hf.mamba import mamba_weights
from zoo.mixers.attention import Attention
from zoo.mixers.mamba import Mamba
from zoo.spec import ModelSpec

MAMBA = "mamba"


class Jamba(QwenExperts):
    """Mamba in most layers and attention without positions in the others, experts in every second layer. Lieber et al.
    2024, arXiv:2403.19887."""

    model_types: ClassVar[tuple[str, ...]] = ("jamba",)
    width_key: ClassVar[str] = "intermediate_size"

    def spec(self, config: Config) -> SpecJson:
        # Implementations, and an option of published configs that no model reads.
        config.ignore("use_mamba_kernels", "use_mambapy", "use_associative_scan", "max_position_embeddings")
        return super().spec(config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        period, offset = config["attn_layer_period"], config["attn_layer_offset"]
        return [[MAMBA] * (i % period != offset) for i in range(config["num_hidden_layers"])]

    def sparse(self, config: Config) -> list[bool]:
        period, offset, layers = (
            config["expert_layer_period"],
            config["expert_layer_offset"],
            config["num_hidden_layers"],
        )
        return [config["num_experts"] > 1 and i % period == offset for i in range(layers)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), MAMBA: {"mixer": self._mamba(config)}}

    def position(self, config: Config) -> SpecJson:
        return {"kind": "nope"}

    def _mamba(self, config: Config) -> SpecJson:
        return {
            "kind": "mamba",
            "inner": config["mamba_expand"] * config["hidden_size"],
            "state": config["mamba_d_state"],
            "rank": config["mamba_dt_rank"],
            "conv": config["mamba_d_conv"],
            "conv_bias": config["mamba_conv_bias"],
            "activation": plain_activation(config, "hidden_act"),
            "bias": config["mamba_proj_bias"],
            "part_norm": self.norm(config),
        }

    def experts(self, config: Config) -> SpecJson:
        return {**super().experts(config), "softmax_over": "all"}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments, mixers = super().config(spec), [layer.mixer for layer in spec.layers]
        for key in ("mlp_only_layers", "decoder_sparse_step", "norm_topk_prob", "head_dim"):
            arguments.pop(key, None)
        attends = [isinstance(mixer, Attention) for mixer in mixers]
        sparse = [isinstance(layer.ffn, TopKMoE) for layer in spec.layers]
        if not any(sparse):
            arguments["num_experts"] = 1
        sizes = {key: value for mixer in mixers for key, value in _mamba_config(mixer, spec.d_model).items()}
        return {**arguments, **sizes, **_every("attn", attends), **_every("expert", sparse)}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if isinstance(layer.mixer, Attention)), spec.layers[0])

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        for pair in super().weights(spec):
            names = tuple(name.replace(".mlp.", ".feed_forward.") for name in pair.theirs)
            yield Pair(pair.ours, names, pair.read, pair.write)

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("norm.gain", "model.final_layernorm.weight")

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.mixer_residual.norm_in.gain", f"{theirs}.input_layernorm.weight")
        yield same(f"{ours}.ffn_residual.norm_in.gain", f"{theirs}.pre_ff_layernorm.weight")

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if not isinstance(layer.mixer, Mamba):
            yield from super().mixer_weights(layer, ours, theirs)
            return
        theirs = theirs.removesuffix("self_attn") + "mamba"
        yield from mamba_weights(layer.mixer, ours, theirs)
        for i, name in enumerate(("dt", "b", "c")):
            yield same(f"{ours}.part_norms.{i}.gain", f"{theirs}.{name}_layernorm.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        for pair in super().ffn_weights(layer, ours, theirs):
            names = tuple(name.replace(".gate.weight", ".router.weight") for name in pair.theirs)
            yield Pair(pair.ours, names, pair.read, pair.write)


def _mamba_config(mixer: object, d_model: int) -> ConfigJson:
    """Arguments of the config class that a layer with a state tells."""
    if not isinstance(mixer, Mamba):
        return {}
    inner, rank = mixer.sizes()
    return {
        "mamba_expand": inner // d_model,
        "mamba_d_state": mixer.state,
        "mamba_dt_rank": rank,
        "mamba_d_conv": mixer.conv,
        "mamba_conv_bias": mixer.conv_bias,
        "mamba_proj_bias": mixer.bias,
    }


def _every(name: str, there: list[bool]) -> dict[str, int]:
    """Which layers have something: those with i mod period = offset."""
    if not any(there):
        return {f"{name}_layer_period": len(there) + 1, f"{name}_layer_offset": len(there)}
    offset = there.index(True)
    period = there.index(True, offset + 1) - offset if there.count(True) > 1 else len(there)
    if offset >= period:
        raise UnsupportedError("pattern", f"layers {offset} and on, every {period}, have no counterpart")
    return {f"{name}_layer_period": period, f"{name}_layer_offset": offset}
