"""Words that practitioners search for, and what they are called here: `synonyms.yaml`, and one way to compare words.

Words are equal if they differ only in case, hyphens, underscores, spaces, a plural s, or American spelling:
`QK-norm`, `qk norms` and `qk_norm`; normalization and normalisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import accumulate
from types import MappingProxyType


def words(text: str) -> list[str]:
    """Words without case and plural, `-ize` as `-ise`: `Learning-rate schedules` → learning, rate, schedule."""
    return [_stem(word) for word in re.findall(r"[a-z0-9]+", text.lower())]


def _stem(word: str) -> str:
    if len(word) > 5:
        word = re.sub(r"ll(?=ing|ed)", "l", word.replace("iz", "is"))
    if len(word) < 4 or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def key(phrase: str) -> str:
    """The phrase without anything that tells equal phrases apart: `QK-norm` → qknorm."""
    return "".join(words(phrase))


@cache
def synonyms() -> Mapping[str, tuple[str, ...]]:
    """Names that others give to a thing, by its name here."""
    import yaml  # noqa: PLC0415 (few programs search)

    text = resources.files("zoo").joinpath("synonyms.yaml").read_text(encoding="utf-8")
    return MappingProxyType({name: tuple(map(str, phrases)) for name, phrases in yaml.safe_load(text).items()})


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    """Names here by the key of each of their synonyms."""
    found: dict[str, tuple[str, ...]] = {}
    for name, phrases in synonyms().items():
        for phrase in map(key, phrases):
            found[phrase] = (*found.get(phrase, ()), name)
    return found


def names_for(phrase: str) -> tuple[str, ...]:
    """Names here of what others call `phrase`; empty if the table does not have it."""
    return _names().get(key(phrase), ())


@cache
def ways_to_say(phrase: str) -> frozenset[str]:
    """Keys of the phrase, of what it is called here, and of the other phrases for the same."""
    here = {*names_for(phrase), *(name for name in synonyms() if key(name) == key(phrase))}
    return frozenset({key(phrase), *map(key, here), *(key(each) for name in here for each in synonyms()[name])})


@cache
def _searchable(text: str) -> tuple[str, frozenset[int]]:
    """A text's words in one piece, and where each begins."""
    every = words(text)
    return "".join(every), frozenset(accumulate(map(len, every), initial=0))


def says(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase, or another way to say it, from the beginning of a word; its last word may go
    on."""
    letters, starts = _searchable(text)
    return any(start in starts for way in ways_to_say(phrase) - {""} for start in _places(letters, way))


def _places(letters: str, way: str) -> Iterator[int]:
    place = letters.find(way)
    while place >= 0:
        yield place
        place = letters.find(way, place + 1)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that others call `word`, or that is the same but for its spelling; None if there is none."""
    known = list(candidates)
    last = {path: key(path.rpartition(".")[2]) for path in known}
    wanted = {key(word), *map(key, names_for(word))}
    return next((path for path in known if last[path] in wanted), None)
