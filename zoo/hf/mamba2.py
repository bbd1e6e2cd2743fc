"""Mamba-2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._backbone import Backbone
from zoo.hf._common import expect, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import plain_activation, theirs_by_name
from zoo.hf._pairs import Pair, both, fused, reshaped, same
from zoo.mixers import Mixer as AnyMixer
from zoo.mixers.mamba2 import Mamba2 as Mixer
from zoo.spec import ModelSpec

UNREAD = ("intermediate_size", "norm_before_gate", "rms_norm", "time_step_init_scheme", "time_step_scale")
"""Keys of published configs, Mamba-Codestral-7B's among them, that no version of transformers reads."""


class Mamba2(Backbone):
    """Dao & Gu 2024, arXiv:2405.21060: x + mixer(norm(x)), and no FFN."""

    model_types: ClassVar[tuple[str, ...]] = ("mamba2",)

    def spec(self, config: Config) -> SpecJson:
        # Initial values, the precision of the stream, and what follows from the heads.
        config.ignore("time_step_rank", "time_step_min", "time_step_max", "time_step_floor", "rescale_prenorm_residual")
        config.ignore("residual_in_fp32", "expand", *UNREAD)
        eps = config["layer_norm_epsilon"]
        return {
            "vocab_size": config["vocab_size"],
            "d_model": config["hidden_size"],
            "n_layers": config["num_hidden_layers"],
            "tie_embeddings": config["tie_word_embeddings"],
            "block": {
                "norm": {"kind": "rmsnorm", "eps": eps},
                "mixer": {
                    "kind": "mamba2",
                    "heads": config["num_heads"],
                    "head_dim": config["head_dim"],
                    "state": config["state_size"],
                    "groups": config["n_groups"],
                    "conv": config["conv_kernel"],
                    "conv_bias": config["use_conv_bias"],
                    "bias": config["use_bias"],
                    "head_norm": {"kind": "rmsnorm", "eps": eps},
                    "chunk": config["chunk_size"],
                    "activation": plain_activation(config, "hidden_act"),
                    **_limits(config),
                },
                "ffn": "none",
            },
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = expect(layer.mixer, Mixer, "mixer")
        return {
            "vocab_size": spec.vocab_size,
            "hidden_size": spec.d_model,
            "num_hidden_layers": spec.n_layers,
            "tie_word_embeddings": spec.tie_embeddings,
            "layer_norm_epsilon": norm_eps(layer),
            "expand": mixer.widths[0] // spec.d_model,
            "num_heads": mixer.heads,
            "head_dim": mixer.features,
            "state_size": mixer.state,
            "n_groups": mixer.groups,
            "conv_kernel": mixer.conv,
            "use_conv_bias": mixer.conv_bias,
            "use_bias": mixer.bias,
            "chunk_size": mixer.chunk,
            "hidden_act": theirs_by_name(gated=False)[mixer.activation],
            "time_step_limit": (mixer.step_min, mixer.step_max or math.inf),
        }

    def mixer_weights(self, mixer: AnyMixer, ours: str, theirs: str) -> Iterator[Pair]:
        return mamba2_weights(expect(mixer, Mixer, "mixer"), ours, theirs)


def _limits(config: Config) -> SpecJson:
    """Limits of Δ. transformers ignores them when it decodes a token at a time; ours does not."""
    least, most = map(float, config["time_step_limit"])
    return {"step_min": least, "step_max": None if math.isinf(most) else most}


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
