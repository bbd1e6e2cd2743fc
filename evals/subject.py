"""Subject of an evaluation: a trained model, and the data that it is evaluated on.

Also requirements of evaluations, checked against a study or a run before any model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from tokenizers import Tokenizer

from evals.conventions import Conventions
from evals.reading.passes import Rows, obstacle
from evals.reading.question import Question
from evals.reading.windows import Text
from zoo.model import Decoder
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Subject:
    """A trained model. `context` is its training context, `batch` its number of rows per pass.

    `answers` is a file that caches the model's answers, so that no question is computed twice; it names the model by
    `sums`, the checksum of its `sums.json`.
    """

    model: Decoder
    context: int
    batch: Rows = "auto"
    seed: int = 0
    answers: Path | None = None
    sums: str = ""


@dataclass(frozen=True)
class HeldOutText:
    """Text that the model was not trained on: as `text`, one row of tokens, and as `documents`.

    `conventions` are the model's rules for reading and writing text. `train` returns the training text's tokens.
    """

    kind: ClassVar[str] = "held-out text"
    absent: ClassVar[str] = "has none"

    tokenizer: Tokenizer
    conventions: Conventions
    text: Text
    documents: Callable[[], Sequence[str]]
    train: Callable[[], NDArray[Any]]


@dataclass(frozen=True)
class SyntheticTask:
    """A synthetic task, by the name of its source.

    `questions` draws examples that the model was not trained on: (other values of some difficulties, examples per
    difficulty, seed) → the examples of each difficulty.
    """

    kind: ClassVar[str] = "a synthetic task"
    absent: ClassVar[str] = "is text"

    source: str
    questions: Callable[[Mapping[str, Sequence[int]], int, int], Iterable[Question]]


Data = HeldOutText | SyntheticTask


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
