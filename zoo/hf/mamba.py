"""Mamba."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._backbone import Backbone
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys
from zoo.hf._pairs import Pair, both, fused, reshaped, same
from zoo.mixers import Mixer as AnyMixer
from zoo.mixers.mamba import Mamba as Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

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
    """Gu & Dao 2023, arXiv:2312.00752: x + mixer(norm(x)), and no FFN."""

    model_types: ClassVar[tuple[str, ...]] = ("mamba",)

    mixer_class: ClassVar[type[AnyMixer]] = Mixer
    mixer_keys: ClassVar[Keys] = {
        "state_size": "state",
        "conv_kernel": "conv",
        "use_conv_bias": "conv_bias",
        "use_bias": "bias",
    }
    mixer_fixed: ClassVar[SpecJson] = {"kind": "mamba"}

    def spec(self, config: Config) -> SpecJson:
        # Initial values, and the precision of the stream.
        config.ignore("time_step_min", "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme")
        config.ignore("rescale_prenorm_residual", "residual_in_fp32", *UNREAD)
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        sizes = {"inner": int(config["expand"] * config["hidden_size"]), "rank": config["time_step_rank"]}
        return {**super().mixer(config), **sizes}

    def config(self, spec: ModelSpec) -> ConfigJson:
        inner, rank = expect(spec.layers[0].mixer, Mixer, "mixer").sizes()
        return {**super().config(spec), "expand": inner // spec.d_model, "time_step_rank": rank}

    def mixer_weights(self, mixer: AnyMixer, ours: str, theirs: str) -> Iterator[Pair]:
        return mamba_weights(expect(mixer, Mixer, "mixer"), ours, theirs)


def mamba_weights(mixer: Mixer, ours: str, theirs: str) -> Iterator[Pair]:
    """All but those of the norms of δ, b and c."""
    inner, _ = mixer.sizes()
    for kind in ("weight", "bias") if mixer.bias else ("weight",):
        yield fused([f"{ours}.x.{kind}", f"{ours}.gate.{kind}"], f"{theirs}.in_proj.{kind}", [inner] * 2)
    yield from both(f"{ours}.o", f"{theirs}.out_proj", bias=mixer.bias)
    yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", (inner, mixer.conv), (inner, 1, mixer.conv))
    if mixer.conv_bias:
        yield same(f"{ours}.conv.bias", f"{theirs}.conv1d.bias")
    names = {"parts.weight": "x_proj.weight", "step.weight": "dt_proj.weight", "step_bias": "dt_proj.bias"}
    for name, their_name in {**names, "log_rate": "A_log", "skip": "D"}.items():
        yield same(f"{ours}.{name}", f"{theirs}.{their_name}")
