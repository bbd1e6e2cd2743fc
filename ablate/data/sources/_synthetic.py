"""Synthetic tasks: examples with answers, in a vocabulary of their own."""

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
"""The token that says nothing, in every vocabulary: what stands where nothing is told, and after a short example."""
IGNORED = -100
"""The target of a token after which nothing is asked, as in the model's loss."""

Tokens: TypeAlias = NDArray[np.int64]
Level: TypeAlias = Mapping[str, int]
"""One difficulty: a value for each setting that takes several."""


class Example(NamedTuple):
    """tokens, targets: (n,). What is read, and what is to be said after each: `IGNORED` where nothing is asked."""

    tokens: Tokens
    targets: Tokens


class _Grade:
    """Marks a setting that takes several values."""


def _graded(smallest: int) -> Any:
    number = {"type": "integer", "minimum": smallest}
    return (
        Field(min_length=1, strict=False),
        BeforeValidator(lambda given: given if isinstance(given, list | tuple) else (given,)),  # one without brackets
        WithJsonSchema({"anyOf": [number, {"type": "array", "items": number, "minItems": 1}]}),
        _Grade(),
    )


Graded = Annotated[tuple[PositiveInt, ...], *_graded(1)]
"""A number, or a list of them: an example has one of these."""
GradedFromZero = Annotated[tuple[NonNegativeInt, ...], *_graded(0)]


class SyntheticSource(DataSource):
    """Examples made from (seed, split, index) alone; there is no text, and no tokenizer.

    A setting that takes a list is a difficulty: training goes through all combinations in turn, one each step, and
    accuracy is reported for each. A step has batch × context tokens: twice the rows where examples need half the
    context. Token 0 is blank; an example stands at the start of its row, blanks after it.
    """

    validation_examples: PositiveInt = 512
    """Number of examples in each held-out part (tuning, judging, test), of all difficulties together."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of tokens, the blank included."""

    @abstractmethod
    def tokens_of(self, level: Level) -> int:
        """Tokens of an example; at most, where they vary."""

    @abstractmethod
    def chance(self, level: Level) -> float | None:
        """The accuracy of guessing well without having solved the task; None where the notion has no meaning."""

    @abstractmethod
    def example(self, level: Level, draw: np.random.Generator) -> Example:
        """One example, drawn."""

    def floor(self, level: Level, example: Example) -> NDArray[np.float64] | None:
        """Nats that the best possible model pays for each thing asked; None where they are not known."""
        return None

    @classmethod
    def difficulties(cls) -> tuple[str, ...]:
        """The settings that take several values."""
        fields = cls.model_fields.items()
        return tuple(name for name, field in fields if any(isinstance(m, _Grade) for m in field.metadata))

    def levels(self) -> tuple[dict[str, int], ...]:
        """Every combination of difficulties, the last one varying fastest."""
        names = self.difficulties()
        return tuple(dict(zip(names, values, strict=True)) for values in product(*(getattr(self, n) for n in names)))

    def widths(self, context: int) -> tuple[int, ...]:
        return tuple(self.width(level, context) for level in self.levels())

    def width(self, level: Level, context: int) -> int:
        """Tokens of a row with an example of this difficulty: the context, halved as often as the example has room."""
        width = context
        while width % 2 == 0 and width // 2 >= self.tokens_of(level):
            width //= 2
        return width

    def misfit(self, context: int) -> str | None:
        longest = max(map(self.tokens_of, self.levels()))
        return f"the longest example of {self.source} has {longest} tokens" if longest > context else None


def next_tokens(sequence: Tokens, asked: Iterable[int]) -> Example:
    """sequence: (n + 1,). Each of the `asked` places is to be predicted from what stands before it."""
    targets = np.full(len(sequence) - 1, IGNORED)
    places = np.fromiter(asked, dtype=np.int64)
    targets[places - 1] = sequence[places]
    return Example(sequence[:-1], targets)


def asked_at(tokens: Tokens, answers: Mapping[int, int]) -> Example:
    """An answer is asked at some places, and need not be what comes next."""
    targets = np.full(len(tokens), IGNORED)
    targets[list(answers)] = list(answers.values())
    return Example(tokens, targets)
