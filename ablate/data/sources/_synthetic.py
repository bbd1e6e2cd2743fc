"""Synthetic tasks: examples with targets, over a vocabulary of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, WithJsonSchema

from ablate.data.sources import DataSource

BLANK = 0
"""Blank token of every vocabulary: filler inside examples, and padding after short ones."""
IGNORED = -100
"""Target of positions without a question; the model's loss ignores them."""

Tokens: TypeAlias = NDArray[np.int64]
Level: TypeAlias = Mapping[str, int]
"""One difficulty level: a value for each graded setting."""


class Example(NamedTuple):
    """tokens, targets: (n,). Inputs, and the target at each; `IGNORED` at positions without a question."""

    tokens: Tokens
    targets: Tokens


class _Grade:
    """Marker of a graded setting: one that takes several values."""


def _graded(smallest: int) -> Any:
    number = {"type": "integer", "minimum": smallest}
    return (
        Field(min_length=1, strict=False),
        BeforeValidator(lambda given: given if isinstance(given, list | tuple) else (given,)),  # a bare number
        WithJsonSchema({"anyOf": [number, {"type": "array", "items": number, "minItems": 1}]}),
        _Grade(),
    )


Graded = Annotated[tuple[PositiveInt, ...], *_graded(1)]
"""A number, or a list of numbers; each example uses one of them."""
GradedFromZero = Annotated[tuple[NonNegativeInt, ...], *_graded(0)]


class SyntheticSource(DataSource):
    """Examples generated from (seed, split, index) alone, without text or tokenizer.

    A setting that takes a list is a difficulty: training steps cycle through all combinations, and accuracy is
    reported for each. A step has batch × context tokens: twice as many rows if examples need half the context. Token 0
    is blank; an example stands at the start of its row and is padded with blanks.
    """

    validation_examples: Annotated[PositiveInt, Field(le=10**6)] = 512
    """Number of examples in each held-out part (tuning, judging, test), over all difficulties."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of token ids, including the blank."""

    @abstractmethod
    def tokens_of(self, level: Level) -> int:
        """Number of tokens of an example; the maximum if lengths vary."""

    @abstractmethod
    def chance(self, level: Level) -> float | None:
        """Accuracy of a good guess without having solved the task; None if the task has no answers to guess."""

    @abstractmethod
    def example(self, level: Level, draw: np.random.Generator) -> Example:
        """Draw one example."""

    def floor(self, level: Level, example: Example) -> NDArray[np.float64] | None:
        """(targets,): lowest possible loss on each target, in nats; None if unknown."""
        return None

    @classmethod
    def difficulties(cls) -> tuple[str, ...]:
        """Names of the settings that take several values."""
        fields = cls.model_fields.items()
        return tuple(name for name, field in fields if any(isinstance(m, _Grade) for m in field.metadata))

    def levels(self) -> tuple[dict[str, int], ...]:
        """Every combination of the difficulties' values; the last difficulty varies fastest."""
        names = self.difficulties()
        return tuple(dict(zip(names, values, strict=True)) for values in product(*(getattr(self, n) for n in names)))

    def widths(self, context: int) -> tuple[int, ...]:
        return tuple(self.width(level, context) for level in self.levels())

    def width(self, level: Level, context: int) -> int:
        """Row width in tokens for this difficulty: the context, halved as often as an example still fits."""
        width = context
        while width % 2 == 0 and width // 2 >= self.tokens_of(level):
            width //= 2
        return width

    def misfit(self, context: int) -> str | None:
        longest = max(map(self.tokens_of, self.levels()))
        return f"the longest example of {self.source} has {longest} tokens" if longest > context else None


def next_tokens(sequence: Tokens, asked: Iterable[int]) -> Example:
    """An example whose targets are the tokens at the positions `asked`, each predicted from the tokens before it.

    sequence: (n + 1,).
    """
    targets = np.full(len(sequence) - 1, IGNORED)
    places = np.fromiter(asked, dtype=np.int64)
    targets[places - 1] = sequence[places]
    return Example(sequence[:-1], targets)


def asked_at(tokens: Tokens, answers: Mapping[int, int]) -> Example:
    """An example with the targets `answers`, keyed by position; a target need not be the next token."""
    targets = np.full(len(tokens), IGNORED)
    targets[list(answers)] = list(answers.values())
    return Example(tokens, targets)
