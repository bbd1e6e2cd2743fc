"""Requirements of evaluations, checked against a study or a run before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evals.reading.passes import obstacle
from evals.subject import Data
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Conditions:
    """Models by their names in messages, and the kind of data that they are evaluated on, whose name is `source`.

    Relative paths start from `folder`. `own_tokenizers`: whether some arms have their own tokenizer. `difficulty_error`
    returns the problem with given values of a synthetic task's difficulties; None without one.
    """

    data: type[Data]
    source: str
    models: Mapping[str, ModelSpec]
    folder: Path
    own_tokenizers: bool = False
    difficulty_error: Callable[[Mapping[str, Sequence[int]]], str | None] = field(default=lambda difficulties: None)


Need = Callable[[Conditions], str | None]
"""Function that returns why conditions do not meet a need; None if they do."""


def causal_models(conditions: Conditions) -> str | None:
    """Need for causal models, which read a text from left to right and give the likelihood of each of its tokens."""
    for name, spec in conditions.models.items():
        if reason := obstacle(spec):
            return f"needs causal models, but {name} {reason}"
    return None


def shared_tokenizer(conditions: Conditions) -> str | None:
    """Need for one tokenizer for all arms, so that all predict the same tokens."""
    return "needs one tokenizer for all arms, but some arms have their own" if conditions.own_tokenizers else None
