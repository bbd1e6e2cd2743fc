"""Requirements of evaluations, checked against a study or a run before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evals.reading.causal import obstacle
from evals.subject import Data
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Conditions:
    """The models, each with what it is called in a message, and the data that they are evaluated on, likewise.

    Relative paths start from `folder`. `misgraded` says what is wrong with values of a synthetic task's difficulties,
    None where nothing is.
    """

    data: type[Data]
    source: str
    models: Mapping[str, ModelSpec]
    folder: Path
    own_tokenizers: bool = False
    misgraded: Callable[[Mapping[str, Sequence[int]]], str | None] = field(default=lambda difficulties: None)


Need = Callable[[Conditions], str | None]
"""Why conditions do not meet a need; None where they do."""


def causal_models(conditions: Conditions) -> str | None:
    """Models that read a text from left to right, and can say how likely each token of it is."""
    for name, spec in conditions.models.items():
        if reason := obstacle(spec):
            return f"needs causal models, and {name} {reason}"
    return None


def shared_tokenizer(conditions: Conditions) -> str | None:
    """One tokenizer for all arms, so that all are asked for the same tokens."""
    return "needs one tokenizer for all arms, and some arms have a different one" if conditions.own_tokenizers else None
