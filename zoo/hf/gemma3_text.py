"""Gemma 3, the language model without images."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import Key, Keys
from zoo.hf._rope_by_type import RopeByType
from zoo.hf.gemma2 import Gemma2
from zoo.settings.edits import SpecJson


class Gemma3(RopeByType, Gemma2):
    """Gemma 2 with a norm of each head's queries and keys instead of a cap, and other positions where there is a
    window. Gemma Team 2025, arXiv:2503.19786."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3_text",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {
        **Gemma2.mixer_keys,
        # transformers reads it, and does not use it.
        "attn_logit_softcapping": Key("softcap", lambda _: None, lambda _: None),
    }

    def spec(self, config: Config) -> SpecJson:
        # They only say what layer_types are by default.
        config.ignore("_sliding_window_pattern", "sliding_window_pattern")
        return super().spec(config)
