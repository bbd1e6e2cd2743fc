"""Synthetic tasks: examples with targets, over a vocabulary of their own, the blank included, generated on demand."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, ValidationError, WithJsonSchema

from ablate.data.corpus import Examples, HeldOutRows
from ablate.data.identity import DIGITS, DataIdentity, MadeSource
from evals.reading.question import Question
from store import DataFolder
from store.documents import HeldOutPart, SyntheticMeta
from store.errors import DataError
from zoo.errors import did_you_mean
from zoo.settings.explain import explain
from zoo.settings.identity import digest_of, identity_of

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


class SyntheticSource(MadeSource):
    """Examples generated from (seed, split, index) alone, without text or tokenizer.

    A setting that takes a list is a difficulty: training steps cycle through all combinations, and accuracy is
    reported for each. A step has batch × context tokens: twice as many rows if examples need half the context. Token 0
    is blank; an example stands at the start of its row and is padded with blanks.
    """

    validation_examples: Annotated[PositiveInt, Field(le=10**6)] = 512
    """Number of examples in each held-out part (tuning, judging, test), over all difficulties."""

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

    def identify(self) -> DataIdentity:
        """Identity from the settings and a hash of the test examples: a change in how examples are made changes it."""
        made = hashlib.sha256()
        for _, examples in _held_out(self, "test"):
            for part in (part for example in examples for part in example):
                made.update(part.astype("<i8").tobytes())
        content = made.hexdigest()
        digest = digest_of({"synthetic": identity_of(self), "content": content}, DIGITS)
        return DataIdentity(digest, self.vocab_size, content)

    def describe(self, identity: DataIdentity) -> SyntheticMeta:
        chances = [chance for level in self.levels() if (chance := self.chance(level)) is not None]
        return SyntheticMeta(
            digest=identity.digest,
            spec=self.model_dump(mode="json"),
            content=identity.content,
            vocab_size=identity.vocab_size,
            synthetic=self.source,
            chance=fmean(chances) if chances else None,
        )

    def open(self, folder: DataFolder, digest: str) -> SyntheticCorpus:
        return SyntheticCorpus(self, folder.path, digest)

    def difficulty_error(self, at: Mapping[str, Sequence[int]]) -> str | None:
        try:
            with_difficulties(self, at)
        except DataError as error:
            return str(error)
        return None

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


STREAMS = {"train": 0, "test": 1, "questions": 2, "tuning": 3, "judging": 4}
"""Random streams, one per split. A task with few distinct examples, such as sums of two digits, repeats some in
several splits."""


class SyntheticCorpus:
    """Examples of a source, each a pure function of (seed, split, index)."""

    tokenizer_path = None
    eos = None

    def __init__(self, source: SyntheticSource, directory: Path, digest: str) -> None:
        self.directory, self.source = directory, source
        self.digest, self.vocab_size = digest, source.vocab_size

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Examples:
        """batch · context tokens of one difficulty, the same for every arm."""
        levels = self.source.levels()
        level = levels[step % len(levels)]
        width = self.source.width(level, context)
        return rows(_examples(self.source, level, batch * context // width, (STREAMS["train"], step), seed), width)

    def held_out_rows(self, part: HeldOutPart, context: int) -> list[HeldOutRows]:
        """The examples of a held-out part, one `HeldOutRows` per difficulty, numbered consecutively; no byte counts."""
        found, first = [], 0
        for level, examples in _held_out(self.source, part):
            width = self.source.width(level, context)
            numbers = first + np.arange(len(examples), dtype=np.int64)
            items = np.broadcast_to(numbers[:, None], (len(examples), width + 1))
            found.append(HeldOutRows(rows(examples, width), items, None))
            first += len(examples)
        return found

    def floor(self, part: HeldOutPart) -> float | None:
        """Lowest possible loss on a held-out part, in nats per target; None if unknown."""
        return _floor(self.source, _held_out(self.source, part))

    def widths(self, context: int) -> tuple[int, ...]:
        """Row widths in tokens; training steps cycle through them."""
        return self.source.widths(context)

    def questions(self, at: Mapping[str, Sequence[int]], examples: int, seed: int) -> Iterator[Question]:
        """Yield `examples` examples of each difficulty; `at` overrides the values of some difficulties.

        Raises:
            DataError: as in `with_difficulties`.
        """
        source = with_difficulties(self.source, at)
        for level in source.levels():
            drawn = _examples(source, level, examples, (STREAMS["questions"],), seed)
            whole = rows(drawn, source.tokens_of(level))
            floor = _floor(source, [(level, drawn)])
            yield Question(level, whole.tokens, whole.targets, source.chance(level), floor)


def with_difficulties(source: SyntheticSource, at: Mapping[str, Sequence[int]]) -> SyntheticSource:
    """The same task at other difficulties.

    Raises:
        DataError: a name in `at` is not a difficulty, a value is invalid, or the vocabulary would grow.
    """
    known = source.difficulties()
    for name in at:
        if name not in known:
            hint = did_you_mean(name, known) or f": {', '.join(known)}"
            raise DataError(f"{name} is not a difficulty of {source.source}{hint}")
    try:
        changed = type(source).model_validate({**source.model_dump(), **at})
    except ValidationError as error:
        raise DataError(str(explain(error, type(source))[0])) from error
    if changed.vocab_size > source.vocab_size:
        raise DataError(f"needs a vocabulary of {changed.vocab_size} tokens, but the model's has {source.vocab_size}")
    return changed


def rows(examples: Sequence[Example], context: int) -> Examples:
    """Pad each example to a row of `context` tokens."""
    tokens = np.full((len(examples), context), BLANK)
    targets = np.full((len(examples), context), IGNORED)
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)], targets[row, : len(example.tokens)] = example
    return Examples(tokens, targets)


Asked = list[tuple[Level, list[Example]]]


def _held_out(source: SyntheticSource, part: HeldOutPart) -> Asked:
    """Held-out examples, the same for all seeds of a run; difficulties have equal counts, up to rounding."""
    levels = source.levels()
    counts = [len(range(place, source.validation_examples, len(levels))) for place in range(len(levels))]
    return [
        (level, _examples(source, level, count, (STREAMS[part], place), 0))
        for place, (level, count) in enumerate(zip(levels, counts, strict=True))
    ]


def _examples(source: SyntheticSource, level: Level, count: int, key: tuple[int, ...], seed: int) -> list[Example]:
    """The first `count` examples of a stream; each has its own generator, seeded by its index."""
    streams = (np.random.SeedSequence(seed, spawn_key=(*key, number)) for number in range(count))
    return [source.example(level, np.random.default_rng(stream)) for stream in streams]


def _floor(source: SyntheticSource, asked: Asked) -> float | None:
    paid = [source.floor(level, example) for level, examples in asked for example in examples]
    known = [nats for nats in paid if nats is not None]
    return float(np.concatenate(known).mean()) if len(known) == len(paid) else None
