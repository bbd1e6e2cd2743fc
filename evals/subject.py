"""Subject of an evaluation: a trained model, and the data that it is evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from tokenizers import Tokenizer

from evals.conventions import Conventions
from evals.reading.passes import Rows
from evals.reading.question import Question
from evals.reading.windows import Text
from zoo.model import Decoder


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
