"""GPT-2 and all that share its config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import UNREAD, LearnedPositions, OpenAILike, conv_weights, ends
from zoo.hf._pairs import Pair, layernorm
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GPT2(LearnedPositions, OpenAILike):
    """Radford et al. 2019, https://openai.com/research/better-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt2",)

    def spec(self, config: Config) -> SpecJson:
        config.only("add_cross_attention", False)
        config.ignore(*UNREAD, "reorder_and_upcast_attn")
        spec = super().spec(config)
        if config["scale_attn_by_inverse_layer_idx"]:
            scale, names = spec["block"]["mixer"]["scale"], [f"layer_{i}" for i in range(spec["n_layers"])]
            # Layer i divides its scores by i + 1.
            spec["blocks"] = {name: {"mixer.scale": scale / (i + 1)} for i, name in enumerate(names)}
            spec["pattern"] = names
        return spec

    def mixer(self, config: Config) -> SpecJson:
        scale = (config["n_embd"] // config["n_head"]) ** -0.5 if config["scale_attn_weights"] else 1.0
        return {**super().mixer(config), "scale": scale}

    def config(self, spec: ModelSpec) -> ConfigJson:
        first, last = attention(spec.layers[0]).scale, attention(spec.layers[-1]).scale
        own = {"scale_attn_weights": first != 1, "scale_attn_by_inverse_layer_idx": last != first}
        return {**super().config(spec), **own}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from ends(spec)
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.ln_2")
            yield from conv_weights(spec.d_model, ours, theirs)
