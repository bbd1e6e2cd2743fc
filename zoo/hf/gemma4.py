"""Gemma 4 without images, sound and experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Pair
from zoo.hf._layers import FULL, SLIDING, attention, dense, types_of
from zoo.hf.gemma import READS, WINDOW, SharedKV
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

WIDE = "wide"


class Gemma4(SharedKV):
    """Gemma 4: heads of another size on layers without a window, whose values may be their projected keys, and a
    learned factor on the stream after each layer. Google 2026, https://ai.google.dev/gemma/docs/core/model_card_4."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma4_text",)
    preference: ClassVar[int] = 3  # transformers cannot run it with shared keys and no per-layer embeddings
    # Read only with experts.
    ignored: ClassVar[tuple[str, ...]] = ("num_experts", "top_k_experts", "moe_intermediate_size")
    model_fixed: ClassVar[SpecJson] = {**SharedKV.model_fixed, "layer_gains": True}

    def spec(self, config: Config) -> SpecJson:
        config.only("enable_moe_block", False)
        config.only("use_bidirectional_attention", None, "vision")  # among tokens of an image
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        own = {**super().mixer(config), **_heads(config, FULL)}
        if not config["attention_k_eq_v"]:
            return own
        return {**own, "keys_as_values": True, "bias": ["q", "k", "o"] if config["attention_bias"] else False}

    def head_dim(self, config: Config) -> int:
        return int(_heads(config, FULL)["head_dim"])

    def near_head_dim(self, config: Config) -> int:
        return int(_heads(config, SLIDING)["head_dim"])

    def inputs(self, config: Config) -> SpecJson | None:
        inputs = super().inputs(config)
        return inputs if config["hidden_size_per_layer_input"] else None

    def kinds(self, config: Config) -> list[list[str]]:
        wide = config["use_double_wide_mlp"]
        return [kind + [WIDE] * (wide and READS in kind) for kind in super().kinds(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        edits, plain = super().edits(config), {"mixer.keys_as_values": False}
        near = {f"mixer.{name}": value for name, value in _heads(config, SLIDING).items()}
        return {
            WINDOW: {**edits[WINDOW], **near, **plain, "mixer.bias": config["attention_bias"]},
            READS: {**edits[READS], **plain},
            WIDE: {"ffn.d_ff": 2 * config["intermediate_size"]},
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        mixers = [attention(layer) for layer in spec.layers]
        wide = any(dense(layer).width > dense(self.typical(spec)).width for layer in spec.layers)
        return {
            **super().config(spec),
            "attention_k_eq_v": any(mixer.keys_as_values for mixer in mixers),
            "use_double_wide_mlp": wide,
            "per_layer_config": {
                str(i): {"head_dim": mixer.head_dim, "num_key_value_heads": mixer.kv_heads}
                for i, mixer in enumerate(mixers)
                if mixer.window is None
            },
        }

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if attention(layer).window), spec.layers[0])

    def inputs_config(self, spec: ModelSpec) -> ConfigJson:
        if spec.per_layer_embeddings is None:
            return {"hidden_size_per_layer_input": 0}
        return super().inputs_config(spec)

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        theirs = tuple(f"model.layers.{i}.layer_scalar" for i in range(spec.n_layers))
        yield Pair(("layer_gains.factors",), theirs, lambda x: [torch.cat(list(x))], lambda x: x[0].split(1))


class Gemma4Unified(Gemma4):
    """Gemma 4 12B, whose config has no per-layer embeddings and no experts."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma4_unified_text",)
    preference: ClassVar[int] = 2

    def inputs(self, config: Config) -> SpecJson | None:
        return None

    def inputs_config(self, spec: ModelSpec) -> ConfigJson:
        return {}


def _heads(config: Config, kind: str) -> SpecJson:
    """Size of a head and number of key heads of the layers of a type. Raises UnsupportedError if the type has several,
    or a layer has other settings of its own."""
    own = {int(layer): settings for layer, settings in (config.get("per_layer_config") or {}).items()}
    found = [own.get(i, {}) for i, each in enumerate(types_of(config)) if each == kind] or [{}]
    if any(each != found[0] for each in found) or not found[0].keys() <= {"head_dim", "num_key_value_heads"}:
        reason = "only head_dim and num_key_value_heads may be set, alike for all layers of a type"
        raise UnsupportedError("per_layer_config", reason)
    both = {"head_dim": config["head_dim"], "num_key_value_heads": config["num_key_value_heads"], **found[0]}
    return {"head_dim": both["head_dim"], "kv_heads": both["num_key_value_heads"]}
