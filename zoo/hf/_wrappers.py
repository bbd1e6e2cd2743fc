"""Language models inside models that read images or sound, too: only the language model's weights are loaded."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

RENAMED = {
    r"^language_model\.model\.blocks\.": "model.layers.",  # as transformers 5 saves Kimi K2.5
    r"^language_model\.model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
    r"^model\.language_model\.": "model.",
}
"""Patterns of the language model's weight names, as published or as saved by transformers, and its own names."""
OTHER_PARTS = (
    "audio_tower.",
    "embed_audio.",
    "embed_vision.",
    "mm_projector.",
    "mtp.",
    "multi_modal_projector.",
    "vision_model.",
    "vision_tower.",
    "visual.",
)
"""Prefixes of the names of other weights."""


def text_config(config: Any, families: Container[str]) -> Any:
    """Config of the language model inside; the config itself if none inside can be converted."""
    inner = getattr(config, "text_config", None)
    if inner is None or config.model_type in families or inner.model_type not in families:
        return config
    inner.tie_word_embeddings = config.tie_word_embeddings  # the whole model's setting decides
    return inner


def language_keys(unexpected: Iterable[str]) -> list[str]:
    """Names of unexpected weights that belong to no other part of the model."""
    return [name for name in unexpected if not name.removeprefix("model.").startswith(OTHER_PARTS)]
