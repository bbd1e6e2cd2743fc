"""Corpora of synthetic tasks: examples are generated on demand, and only the settings are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
from pydantic import ValidationError

from ablate.data.corpus import Examples, HeldOutRows
from ablate.data.identity import DIGITS, DataIdentity
from ablate.data.sources import parse
from ablate.data.sources._synthetic import BLANK, IGNORED, Example, Level, SyntheticSource
from evals.reading.question import Question
from store import DataFolder
from store.documents import HeldOutPart, SyntheticMeta
from store.errors import DataError
from zoo.errors import did_you_mean
from zoo.settings.explain import explain
from zoo.settings.identity import digest_of, identity_of

STREAMS = {"train": 0, "test": 1, "questions": 2, "tuning": 3, "judging": 4}
"""Random streams, one per split. A task with few distinct examples, such as sums of two digits, repeats some in
several splits."""


class SyntheticCorpus:
    """Examples of a source, each a pure function of (seed, split, index)."""

    tokenizer_path = None
    eos = None

    def __init__(self, folder: DataFolder, meta: SyntheticMeta) -> None:
        source = parse(meta.spec)
        if not isinstance(source, SyntheticSource):
            raise TypeError(f"{folder.path} is no synthetic corpus")
        self.directory, self.source = folder.path, source
        self.digest, self.vocab_size = meta.digest, source.vocab_size

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


def difficulty_error(source: SyntheticSource, at: Mapping[str, Sequence[int]]) -> str | None:
    """Why the difficulties `at` cannot be used; None if they can."""
    try:
        with_difficulties(source, at)
    except DataError as error:
        return str(error)
    return None


def rows(examples: Sequence[Example], context: int) -> Examples:
    """Pad each example to a row of `context` tokens."""
    tokens = np.full((len(examples), context), BLANK)
    targets = np.full((len(examples), context), IGNORED)
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)], targets[row, : len(example.tokens)] = example
    return Examples(tokens, targets)


def identify_synthetic(source: SyntheticSource) -> DataIdentity:
    """Identity from the settings and a hash of the test examples: a change in how examples are made changes it."""
    made = hashlib.sha256()
    for _, examples in _held_out(source, "test"):
        for part in (part for example in examples for part in example):
            made.update(part.astype("<i8").tobytes())
    content = made.hexdigest()
    digest = digest_of({"synthetic": identity_of(source), "content": content}, DIGITS)
    return DataIdentity(digest, source.vocab_size, content)


def synthetic_meta(source: SyntheticSource, identity: DataIdentity) -> SyntheticMeta:
    chances = [chance for level in source.levels() if (chance := source.chance(level)) is not None]
    return SyntheticMeta(
        digest=identity.digest,
        spec=source.model_dump(mode="json"),
        content=identity.content,
        vocab_size=identity.vocab_size,
        synthetic=source.source,
        chance=fmean(chances) if chances else None,
    )


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
