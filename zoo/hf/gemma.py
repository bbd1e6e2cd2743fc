"""Gemma, Gemma 2, VaultGemma and Gemma 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._keyed import DOUBLE
from zoo.hf._keys import BIAS, Key, Keys
from zoo.hf._layers import window_config, windows
from zoo.hf._llama_like import LlamaLike
from zoo.hf._rope_by_layer import RopeByType
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Gemma(LlamaLike):
    """Llama with gains of 1 + w and embeddings times √D. Gemma Team 2024, arXiv:2403.08295."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma",)
    model_fixed: ClassVar[SpecJson] = {"embedding_scale": "sqrt_d_model"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}

    def spec(self, config: Config) -> SpecJson:
        # Each generation reads one of two names; published configs have both.
        config.ignore("hidden_act", "hidden_activation")
        config.only("use_bidirectional_attention", None, False)
        return super().spec(config)


def _scalar(scale: float | None) -> int:
    """A whole number, as the config wants it: another scale is not found again, and so refused."""
    return max(1, round((scale or 1.0) ** -2))


class Gemma2(Gemma):
    """Gemma with norms on both sides of a branch, capped scores and logits, and windows on some layers. Gemma Team
    2024, arXiv:2408.00118."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma2",)
    ignored: ClassVar[tuple[str, ...]] = ("sliding_window_size",)  # transformers does not read it
    model_keys: ClassVar[Keys] = {**Gemma.model_keys, "final_logit_softcapping": "final_softcap"}
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "double"}
    mixer_keys: ClassVar[Keys] = {
        **Gemma.mixer_keys,
        "query_pre_attn_scalar": Key("scale", lambda scalar: scalar**-0.5, _scalar),
        "attn_logit_softcapping": "softcap",
    }
    activation_key: ClassVar[str] = "hidden_activation"
    norm_names: ClassVar[Mapping[str, str]] = DOUBLE

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}


class VaultGemma(Gemma2):
    """Gemma 2 without norms behind the branches. VaultGemma Team 2025, arXiv:2510.15001."""

    model_types: ClassVar[tuple[str, ...]] = ("vaultgemma",)
    block_fixed: ClassVar[SpecJson] = {"norm_placement": "pre"}
    norm_names: ClassVar[Mapping[str, str]] = {
        "mixer_residual.norm_in": "input_layernorm",
        "ffn_residual.norm_in": "pre_feedforward_layernorm",
    }


class Gemma3(RopeByType, Gemma2):
    """Gemma 3, the language model without images: Gemma 2 with a norm of each head's queries and keys instead of a cap,
    and other positions where there is a window. Gemma Team 2025, arXiv:2503.19786."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3_text",)
    # They only say what layer_types are by default.
    ignored: ClassVar[tuple[str, ...]] = ("_sliding_window_pattern", "sliding_window_pattern")
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {
        **Gemma2.mixer_keys,
        # transformers reads it, and does not use it.
        "attn_logit_softcapping": Key("softcap", lambda _: None, lambda _: None),
    }
