"""Items of the tasks built from held-out documents."""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, zip_longest
from typing import Any, NamedTuple, TypeAlias

from datasets import Dataset

from evals.harness.datafiles import TaskDataError

_WORD_START = re.compile(r"(?<=\S) (?=\w)")
_LAST_WORD = re.compile(r"(?<=\S) ([A-Za-z]{3,})[.:;,)!?\"'”’]{0,3}\r?$", re.MULTILINE)
_FEWEST_WORDS = 5
_TRIES_PER_ITEM = 50
CHOICES = 4


class Spot(NamedTuple):
    """A word boundary in a document: the text before it, and the text after it."""

    document: int
    place: int
    context: str
    continuation: str


def pairs(
    documents: Sequence[str],
    seed: int,
    items: int,
    context_characters: int,
    continuation_characters: int,
    **_: Any,
) -> dict[str, Dataset]:
    """Which of two contexts precedes a continuation? The other context is held-out text from elsewhere.

    The same continuation is scored after both, so its own frequency, length and spelling cancel: only the effect of the
    context is left. Both contexts have the same number of characters and end before a word. Chance is ½. Too little
    text gives fewer items.
    """
    draw = random.Random(seed)
    spots = _spots(documents, draw, context_characters, continuation_characters, items)
    rows = list(islice(_pair_up(spots, draw), items))
    return {"test": _dataset(rows)}


Item: TypeAlias = dict[str, Any]
"""A row of a task's data set; each task has its own fields."""


def _pair_up(spots: Iterator[Spot], draw: random.Random) -> Iterator[Item]:
    """Items from spots, two at a time; pairs that overlap or have the same context are dropped."""
    for real, other in zip(spots, spots, strict=False):
        reach = len(real.context) + len(real.continuation)
        apart = real.document != other.document or abs(real.place - other.place) > reach
        if not apart or real.context == other.context:
            continue
        label = draw.randrange(2)
        contexts = [real.context, other.context]
        yield {
            "document": real.document,
            "contexts": contexts[::-1] if label else contexts,
            "label": label,
            "continuation": real.continuation,
        }


def _spots(documents: Sequence[str], draw: random.Random, before: int, after: int, items: int) -> Iterator[Spot]:
    """Word boundaries, drawn uniformly over characters; no two continuations from one stretch of `after` characters."""
    ends = list(accumulate(len(d) for d in documents))
    taken: set[tuple[int, int]] = set()
    for _ in range(_TRIES_PER_ITEM * items if ends and ends[-1] else 0):
        at = draw.randrange(ends[-1])
        document = bisect_right(ends, at)
        text = documents[document]
        start = max(before, at - (ends[document] - len(text)))
        found = _WORD_START.search(text, start, max(start, len(text) - after + 1))
        if found is None or (document, found.start() // after) in taken:
            continue
        place = found.start()
        taken.add((document, place // after))
        yield Spot(document, place, text[place - before : place], text[place : place + after])


def passages(documents: Sequence[str], seed: int, passages: int, passage_bytes: int, **_: Any) -> dict[str, Dataset]:
    """Passages of at most `passage_bytes` bytes, one from each document, then more from the longer documents.

    They do not overlap. A character that a cut would split belongs to neither side.
    """
    draw = random.Random(seed)
    encoded = [(i, text.encode()) for i, text in enumerate(documents) if text.strip()]
    draw.shuffle(encoded)
    places = []  # starts of each document's passages, in random order
    for _i, data in encoded:
        slots = max(1, len(data) // passage_bytes)
        places.append([slot * passage_bytes for slot in draw.sample(range(slots), min(slots, passages))])
    rows = [
        {"document": i, "text": data[start : start + passage_bytes].decode(errors="ignore")}
        # Round by round: every document's first passage comes before any document's second.
        for starts in zip_longest(*places)
        for (i, data), start in zip(encoded, starts, strict=True)
        if start is not None
    ]
    return {"test": _dataset(rows[:passages])}


def last_words(
    documents: Sequence[str], seed: int, items: int, context_characters: int, **_: Any
) -> dict[str, Dataset]:
    """The last word of a line of five words or more, against the last words of three other lines.

    All four come from the same draw, so that the frequency or length of a word gives nothing away. Chance is ¼. After
    LAMBADA (Paperno et al. 2016, arXiv:1606.06031), whose passages were chosen by people.
    """
    draw = random.Random(seed)
    found = []
    for number, text in enumerate(documents):
        for match in _LAST_WORD.finditer(text):
            place = match.start()  # of the space before the word
            if len(text[text.rfind("\n", 0, place) + 1 : match.end()].split()) >= _FEWEST_WORDS:
                context = text[max(0, place - context_characters) : place]
                found.append({"document": number, "context": context, "word": match[1]})
    lines = draw.sample(found, min(len(found), CHOICES * items))
    rows = []
    for start in range(0, len(lines) - CHOICES + 1, CHOICES):
        words = [f" {line['word']}" for line in lines[start : start + CHOICES]]
        label = draw.randrange(CHOICES)
        if len(set(words)) == CHOICES:
            line, right = lines[start], words[0]
            choices = [*words[1 : label + 1], right, *words[label + 1 :]]
            rows.append({"document": line["document"], "context": line["context"], "choices": choices, "label": label})
    return {"test": _dataset(rows)}


def _dataset(rows: list[Item]) -> Dataset:
    if not rows:
        raise TaskDataError("the held-out documents are too short for a single item")
    return Dataset.from_list(rows)


def perplexity(items: Sequence[tuple[float, int]]) -> float:
    """exp(−Σ log p ÷ Σ units), infinite on overflow: text without spaces is one very long word."""
    log_p, units = map(sum, zip(*items, strict=True))
    try:
        return math.exp(-log_p / units)
    except OverflowError:
        return math.inf
