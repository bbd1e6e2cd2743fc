"""Subject of an evaluation: a trained model, and the data that it is evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from tokenizers import Tokenizer

from evals.harness.conventions import Conventions
from evals.reading.batches import Rows
from evals.reading.question import Question
from evals.reading.windows import Text
from zoo.model import Decoder


@dataclass(frozen=True)
class Subject:
    """A trained model. `context` is that of its training, `batch` how many rows it reads at once.

    `answers` is a file in which what it answered is looked up and kept, so that nothing is asked of it twice.
    """

    model: Decoder
    context: int
    batch: Rows = "auto"
    seed: int = 0
    answers: Path | None = None


@dataclass(frozen=True)
class HeldOutText:
    """Text that the model was not trained on: as `text`, one row of tokens, and as `documents`.

    `conventions` are those by which the model reads and writes text, `train` are the tokens of the training text.
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

    `questions` draws examples the model was not trained on: (other values of some difficulties, examples of each, seed)
    → the examples of each difficulty.
    """

    kind: ClassVar[str] = "a synthetic task"
    absent: ClassVar[str] = "is text"

    source: str
    questions: Callable[[Mapping[str, Sequence[int]], int, int], Iterable[Question]]


Data = HeldOutText | SyntheticTask
