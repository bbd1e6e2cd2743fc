"""GPT-2 and all that share its config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.edits import SpecJson
from zoo.hf._common import attention, dense, expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Family
from zoo.hf._ffn import activation, ffn
from zoo.hf._gpt import UNREAD, conv_weights, inner, sizes
from zoo.hf._pairs import Pair, layernorm, same
from zoo.positions.learned import Learned
from zoo.spec import ModelSpec


class GPT2(Family):
    """Radford et al. 2019, https://openai.com/research/better-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("gpt2",)

    def spec(self, config: Config) -> SpecJson:
        config.only("add_cross_attention", False)
        config.ignore(*UNREAD, "reorder_and_upcast_attn")
        heads = config["n_head"]
        scale = (config["n_embd"] // heads) ** -0.5 if config["scale_attn_weights"] else 1.0
        spec = {
            "vocab_size": config["vocab_size"],
            "d_model": config["n_embd"],
            "n_layers": config["n_layer"],
            "tie_embeddings": config["tie_word_embeddings"],
            "embedding_dropout": config["embd_pdrop"],
            "block": {
                "norm": {"kind": "layernorm", "eps": config["layer_norm_epsilon"]},
                "dropout": config["resid_pdrop"],
                "mixer": {
                    "kind": "attention",
                    "heads": heads,
                    "position": {"kind": "learned", "length": config["n_positions"]},
                    "bias": True,
                    "dropout": config["attn_pdrop"],
                    "scale": scale,
                },
                "ffn": {**ffn(config, "activation_function", gated=False), "d_ff": inner(config), "bias": True},
            },
        }
        return spec | self._scales(scale, config["n_layer"]) if config["scale_attn_by_inverse_layer_idx"] else spec

    def _scales(self, scale: float, n_layers: int) -> SpecJson:
        """Layer i divides its scores by i + 1."""
        names = [f"layer_{i}" for i in range(n_layers)]
        return {
            "blocks": {name: {"mixer.scale": scale / (i + 1)} for i, name in enumerate(names)},
            "pattern": names,
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        layer = spec.layers[0]
        mixer = attention(layer)
        return {
            **sizes(spec),
            "n_positions": expect(mixer.position, Learned, "mixer.position").length,
            "scale_attn_weights": mixer.scale != 1,
            "scale_attn_by_inverse_layer_idx": attention(spec.layers[-1]).scale != mixer.scale,
            "activation_function": activation(layer.ffn, gated=False),
            "n_inner": dense(layer).width,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield same("embedding.weight", "transformer.wte.weight")
        yield same("positions.0.table.weight", "transformer.wpe.weight")
        yield from layernorm("norm", "transformer.ln_f")
        if not spec.tie_embeddings:
            yield same("head.weight", "lm_head.weight")
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.ln_2")
            yield from conv_weights(spec.d_model, ours, theirs)
