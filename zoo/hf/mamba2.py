"""Mamba-2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._backbone import Backbone
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Key, Keys
from zoo.hf._pairs import Pair, both, fused, reshaped, same
from zoo.mixers import Mixer as AnyMixer
from zoo.mixers.mamba2 import Mamba2 as Mixer
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

UNREAD = ("intermediate_size", "norm_before_gate", "rms_norm", "time_step_init_scheme", "time_step_scale")
"""Keys of published configs, Mamba-Codestral-7B's among them, that no version of transformers reads."""


class Mamba2(Backbone):
    """Dao & Gu 2024, arXiv:2405.21060: x + mixer(norm(x)), and no FFN."""

    model_types: ClassVar[tuple[str, ...]] = ("mamba2",)

    mixer_class: ClassVar[type[AnyMixer]] = Mixer
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
        # Initial values, the precision of the stream, and what follows from the heads.
        config.ignore("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "rescale_prenorm_residual")
        config.ignore("residual_in_fp32", "expand", *UNREAD)
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "head_norm": self.norm(config), **limits(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixer = expect(spec.layers[0].mixer, Mixer, "mixer")
        return {**super().config(spec), "expand": mixer.widths[0] // spec.d_model, **limits_config(mixer)}

    def mixer_weights(self, mixer: AnyMixer, ours: str, theirs: str) -> Iterator[Pair]:
        return mamba2_weights(expect(mixer, Mixer, "mixer"), ours, theirs)


def limits(config: Config) -> SpecJson:
    """Limits of Δ. transformers ignores them when it decodes a token at a time; ours does not."""
    least, most = map(float, config["time_step_limit"])
    return {"step_min": least, "step_max": None if math.isinf(most) else most}


def limits_config(mixer: Mixer) -> ConfigJson:
    """Arguments of the config class for the limits of Δ."""
    return {"time_step_limit": (mixer.step_min, mixer.step_max or math.inf)}


def mamba2_weights(mixer: Mixer, ours: str, theirs: str) -> Iterator[Pair]:
    """Its one projection is our five; its one gain is ours of all groups."""
    inner, channels = mixer.widths[0], sum(mixer.widths)
    projections = [f"{ours}.{name}" for name in ("gate", "x", "b", "c", "forget")]
    for kind in ("weight", "bias") if mixer.bias else ("weight",):
        parts = [f"{name}.{kind}" for name in projections]
        yield fused(parts, f"{theirs}.in_proj.{kind}", [inner, *mixer.widths, mixer.heads])
    yield from both(f"{ours}.o", f"{theirs}.out_proj", bias=mixer.bias)
    yield reshaped(f"{ours}.conv.weight", f"{theirs}.conv1d.weight", (channels, mixer.conv), (channels, 1, mixer.conv))
    if mixer.conv_bias:
        yield same(f"{ours}.conv.bias", f"{theirs}.conv1d.bias")
    gains = [f"{ours}.head_norm.norms.{i}.gain" for i in range(mixer.groups)]
    yield fused(gains, f"{theirs}.norm.weight", [inner // mixer.groups] * mixer.groups)
    for name, theirs_name in {"decay.log_rate": "A_log", "decay.step_bias": "dt_bias", "skip": "D"}.items():
        yield same(f"{ours}.{name}", f"{theirs}.{theirs_name}")
