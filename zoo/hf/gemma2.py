"""Gemma 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Key, Keys
from zoo.hf._layers import window_config, windows
from zoo.hf._llama_like import DOUBLE
from zoo.hf.gemma import Gemma
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


def _scalar(scale: float | None) -> int:
    """A whole number, as the config wants it: another scale is not found again, and so refused."""
    return max(1, round((scale or 1.0) ** -2))


class Gemma2(Gemma):
    """Gemma with norms on both sides of a branch, capped scores and logits, and windows on some layers. Gemma Team
    2024, arXiv:2408.00118."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma2",)
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
        config.ignore("sliding_window_size")  # transformers does not read it
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}
