"""The part of the model that a claim is about, derived from the settings in which its arms differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
SEVERAL = "several parts at once"
"""Topic of a study whose arms have more than `MOST` topics."""
MOST = 3
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


def home(cards: Sequence[tuple[str, ...]]) -> str:
    """Where a study stands whose cards have these topics, that of its question first: the topic of most of them."""
    if len(cards[0]) > MOST:
        return SEVERAL
    found = Counter(topic for topics in cards for topic in topics)
    return max(TOPICS, key=lambda topic: found[topic])


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
