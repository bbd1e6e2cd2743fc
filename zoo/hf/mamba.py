"""Mamba, Falcon Mamba and Mamba-2: models without FFNs, in transformers' module `backbone`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import Config, ConfigJson, Key, Keys, read
from zoo.hf._family import Pair, both, convolution, fused, fused_layers, same
from zoo.hf._ffn import plain_activation, theirs_by_name
from zoo.hf._keyed import Keyed
from zoo.hf._layers import expect
from zoo.mixers import Mixer, mamba, mamba2
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Backbone(Keyed):
    """x + mixer(norm(x)) in every layer, and no FFN."""

    norm_keys: ClassVar[Keys] = {"layer_norm_epsilon": "eps"}
    table_name: ClassVar[str] = "backbone.embeddings"
    final_norm_name: ClassVar[str] = "backbone.norm_f"
    layers_name: ClassVar[str] = "backbone.layers"
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "norm"}
    mixer_name: ClassVar[str] = "mixer"
    fixed_position: ClassVar[SpecJson | None] = {"kind": "nope"}

    def mixer(self, config: Config) -> SpecJson:
        act = plain_activation(config, self.activation_key)
        return {**self.mixer_fixed, **read(self.mixer_keys, config), "activation": act}

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "none"}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        """The activation, which is the mixer's."""
        return {self.activation_key: theirs_by_name(gated=False)[getattr(layer.mixer, "activation", "")]}


UNREAD = (
    "intermediate_size",
    "use_mambapy",
    "use_associative_scan",
    "use_falcon_mambapy",
    "d_inner",
    "d_model",
    "ssm_cfg",
)
"""Keys that name an implementation, or that no version of transformers reads."""


class Mamba(Backbone):
    """Mamba: x + mixer(norm(x)), and no FFN. Gu & Dao 2023, arXiv:2312.00752."""

    model_types: ClassVar[tuple[str, ...]] = ("mamba",)

    mixer_class: ClassVar[type[Mixer]] = mamba.Mamba
    mixer_keys: ClassVar[Keys] = {
        "state_size": "state",
        "conv_kernel": "conv",
        "use_conv_bias": "conv_bias",
        "use_bias": "bias",
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "mamba"}

    def spec(self, config: Config) -> SpecJson:
        # Initial values, the precision of the stream, and keys that no version reads.
        config.ignore("time_step_min", "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme")
        config.ignore("rescale_prenorm_residual", "residual_in_fp32", *UNREAD)
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        sizes = {"inner": int(config["expand"] * config["hidden_size"]), "rank": config["time_step_rank"]}
        return {**super().mixer(config), **sizes}

    def config(self, spec: ModelSpec) -> ConfigJson:
        inner, rank = expect(spec.layers[0].mixer, mamba.Mamba, "mixer").sizes()
        return {**super().config(spec), "expand": inner // spec.d_model, "time_step_rank": rank}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return mamba_weights(expect(layer.mixer, mamba.Mamba, "mixer"), ours, theirs)


def mamba_weights(mixer: mamba.Mamba, ours: str, theirs: str) -> Iterator[Pair]:
    """All weights of the mixer but the norms of δ, b and c."""
    inner, _ = mixer.sizes()
    yield from fused_layers(ours, ("x", "gate"), f"{theirs}.in_proj", [inner] * 2, bias=mixer.bias)
    yield from both(f"{ours}.o", f"{theirs}.out_proj", bias=mixer.bias)
    yield from convolution(f"{ours}.conv", f"{theirs}.conv1d", inner, mixer.conv, bias=mixer.conv_bias)
    names = {"parts.weight": "x_proj.weight", "step.weight": "dt_proj.weight", "step_bias": "dt_proj.bias"}
    for name, their_name in {**names, "log_rate": "A_log", "skip": "D"}.items():
        yield same(f"{ours}.{name}", f"{theirs}.{their_name}")


class FalconMamba(Mamba):
    """Falcon Mamba: Mamba with gainless norms on δ, b and c. Zuo et al. 2024, arXiv:2410.05355."""

    model_types: ClassVar[tuple[str, ...]] = ("falcon_mamba",)

    def mixer(self, config: Config) -> SpecJson:
        norm = {"kind": "rmsnorm", "eps": config["mixer_rms_eps"], "gain": False}
        return {**super().mixer(config), "part_norm": norm}

    def config(self, spec: ModelSpec) -> ConfigJson:
        norm = expect(spec.layers[0].mixer, mamba.Mamba, "mixer").part_norm
        return {**super().config(spec), "mixer_rms_eps": getattr(norm, "eps", 1e-6)}


class Mamba2(Backbone):
    """Mamba-2: x + mixer(norm(x)), and no FFN. Dao & Gu 2024, arXiv:2405.21060."""

    model_types: ClassVar[tuple[str, ...]] = ("mamba2",)

    mixer_class: ClassVar[type[Mixer]] = mamba2.Mamba2
    mixer_keys: ClassVar[Keys] = {
        "num_heads": "heads",
        "head_dim": Key("head_dim", resolved="features"),
        "state_size": "state",
        "n_groups": "groups",
        "conv_kernel": "conv",
        "use_conv_bias": "conv_bias",
        "use_bias": "bias",
        "chunk_size": "chunk",
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "mamba2"}

    def spec(self, config: Config) -> SpecJson:
        # Initial values, the precision of the stream, and a size that follows from the heads.
        config.ignore("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "time_step_init_scheme")
        config.ignore("time_step_scale", "rescale_prenorm_residual", "residual_in_fp32", "expand")
        # Keys of published configs, Mamba-Codestral-7B's among them, that no version of transformers reads.
        config.ignore("intermediate_size", "norm_before_gate", "rms_norm")
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "head_norm": self.norm(config), **limits(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixer = expect(spec.layers[0].mixer, mamba2.Mamba2, "mixer")
        return {**super().config(spec), "expand": mixer.widths[0] // spec.d_model, **limits_config(mixer)}

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return mamba2_weights(expect(layer.mixer, mamba2.Mamba2, "mixer"), ours, theirs)


def limits(config: Config) -> SpecJson:
    """Limits of Δ. transformers ignores them when it decodes token by token; ours does not."""
    least, most = map(float, config["time_step_limit"])
    return {"step_min": least, "step_max": None if math.isinf(most) else most}


def limits_config(mixer: mamba2.Mamba2) -> ConfigJson:
    """Arguments of the config class for the limits of Δ."""
    return {"time_step_limit": (mixer.step_min, mixer.step_max or math.inf)}


def mamba2_weights(mixer: mamba2.Mamba2, ours: str, theirs: str) -> Iterator[Pair]:
    """All weights of the mixer. transformers fuses our five input projections, and the gains of our groups."""
    inner, channels = mixer.widths[0], sum(mixer.widths)
    parts, sizes = ("gate", "x", "b", "c", "forget"), [inner, *mixer.widths, mixer.heads]
    yield from fused_layers(ours, parts, f"{theirs}.in_proj", sizes, bias=mixer.bias)
    yield from both(f"{ours}.o", f"{theirs}.out_proj", bias=mixer.bias)
    yield from convolution(f"{ours}.conv", f"{theirs}.conv1d", channels, mixer.conv, bias=mixer.conv_bias)
    gains = [f"{ours}.head_norm.norms.{i}.gain" for i in range(mixer.groups)]
    if mixer.head_norm.parameters(1):
        yield fused(gains, f"{theirs}.norm.weight", [inner // mixer.groups] * mixer.groups)
    for name, theirs_name in {"decay.log_rate": "A_log", "decay.step_bias": "dt_bias", "skip": "D"}.items():
        yield same(f"{ours}.{name}", f"{theirs}.{theirs_name}")
