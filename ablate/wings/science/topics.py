"""The part of the model that a claim is about, derived from the settings in which its arms differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ablate.wings.catalogue.parts import Plain

TOPICS = {
    "norms": ("norm", "norm_placement", "qk_norm", "final_norm", "embedding_norm"),
    "positions": ("position", "scaling", "rope_base"),
    "attention and mixers": ("mixer", "pattern", "sparsity", "window", "kv_heads", "heads"),
    "feed-forward": ("ffn", "d_ff"),
    "block and shape": ("topology", "sharing", "n_layers", "d_model", "canon"),
    "training and data": ("train", "data", "objective", "optimizer", "start", "lora", "teacher", "tokenizer"),
}
"""Settings by topic. The innermost listed setting of a path decides."""
OTHER = "block and shape"
INCIDENTAL = ("train.lr", "d_ff", "multiple_of", "batch", "steps")
"""Suffixes of paths that tuning and matching edit in addition to an arm's own change."""
_TOPIC_OF = {setting: topic for topic, settings in TOPICS.items() for setting in settings}


def topics_of(edits: Iterable[Plain]) -> tuple[str, ...]:
    """Topics of these arms, in the order of `TOPICS`. Incidental settings count only if there are no others."""
    paths = [path for each in edits for path in _paths("", each)]
    about = [path for path in paths if not path.endswith(INCIDENTAL)] or paths
    found = {_topic(path) for path in about}
    return tuple(topic for topic in TOPICS if topic in found) or (OTHER,)


def _paths(path: str, value: Any) -> Iterator[str]:
    """Dotted paths of all leaves."""
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _paths(f"{path}.{key}" if path else key, inside)
    else:
        yield path


def _topic(path: str) -> str:
    parts = path.split(".")
    if parts[0] in ("train", "data", "start", "teacher", "lora"):
        return "training and data"
    return next((_TOPIC_OF[part] for part in reversed(parts) if part in _TOPIC_OF), OTHER)
