"""`ablate.find`: what the words of papers are called here, and where it is."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel

from ablate.commands import COMMANDS
from ablate.study.sections import Budget, StudySections
from ablate.study.written import read_study, shipped
from ablate.wings.catalogue.catalogue import OF_ARMS, WHOLES, catalogued, named_values
from ablate.wings.science.handbook import claims
from zoo.presets import names as presets
from zoo.presets import preset
from zoo.settings.descriptions import descriptions
from zoo.vocabulary import key, says, ways_to_say

DOCS = Path(__file__).parents[3] / "docs"
"""The documentation of a source tree; an installed package has none."""
HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)
SAID = {"mixers": "attention", "positions.scalings": "scaling"}
"""What papers call the variants of an axis, where that is not its name: *lightning attention*."""


COMMON = frozenset(
    re.findall(r"\w+", "a an and are as at be by can do does for from how in is it of on or the to vs what with")
)
"""Words of a question that nothing is searched for."""
ENDING = re.compile(r"(?<=\w{4})(ing|ed|e)$")
EXACT, NAMED, TEXT, ABSENT = (0, 1), 2, 4, 5
"""Places of a term: a whole name, the last of a name, the text below the first sentence, and nowhere."""


@dataclass(frozen=True)
class Found:
    """Something with a name. command: what shows it, or the page that describes it."""

    kind: str
    name: str
    about: str
    command: str
    text: str = field(default="", repr=False)
    """Further text that is searched."""

    @cached_property
    def names(self) -> set[str]:
        """Keys of its name: `optimizers: soap` is found as soap and as SOAP optimizer, too."""
        kind, _, own = self.name.rpartition(":")
        return {key(self.name), key(own), key(f"{own} {SAID.get(kind, kind)}")}

    @cached_property
    def whole(self) -> str:
        """All of its text."""
        return f"{self.name} {self.about} {self.text}"


def find(*phrases: str) -> tuple[Found, ...]:
    """Everything that is called, or says, what the words mean, the best first.

    Args:
        phrases: words as papers have them, such as "QK-norm", "sliding window" or "MoE load balancing". Together they
            are one phrase. What says only some of its words is found if nothing says more of them, and one is in its
            name or first sentence.

    Returns:
        What was found: what has the phrase as its name, then what has most of its words in name and first sentence.

    Raises:
        PluginError: a plug-in among the parts cannot be used.

    Example:
        >>> ablate.find("weight tying")[0].name
        'tie_embeddings'
    """
    whole = " ".join(phrases)
    said = terms(whole)
    found: list[tuple[tuple[int, ...], Found, set[str]]] = []
    for each in everything():
        places = {term: _place(each, term, loose=True) for term in said}
        together = _place(each, whole)
        has = set(said) if together < ABSENT else {term for term, place in places.items() if place < ABSENT}
        seen = sum(min(place, together) < TEXT for place in places.values())
        if seen or len(has) == len(said):
            named = together if together <= NAMED else ABSENT
            found.append(((named, -seen, sum(places.values())), each, has))
    most = {term: max((len(has) for _, _, has in found if term in has), default=0) for term in said}
    best = [
        (rank, each)
        for rank, each, has in found
        if any(len(has) == most[term] for term in has) or any(_place(each, term) in EXACT for term in said)
    ]
    return tuple(each for _, each in sorted(best, key=lambda pair: pair[0]))


def terms(phrase: str) -> tuple[str, ...]:
    """Known phrases in the phrase, the longest first, and its other words but `of`, `the`, …: MoE, load balancing."""
    left, found = re.findall(r"\w+", phrase), list[str]()
    while left:
        longest = len(left) if found else max(1, len(left) - 1)
        tried = (" ".join(left[:many]) for many in range(longest, 0, -1))
        term = next((each for each in tried if key(each) in _names() or len(ways_to_say(each)) > 1), left[0])
        found.append(term)
        left = left[len(term.split()) :]
    return tuple(dict.fromkeys(each for each in found if each.lower() not in COMMON)) or (phrase,)


def unsaid(phrase: str) -> tuple[str, ...]:
    """The terms of a phrase that nothing has."""
    return tuple(
        term for term in terms(phrase) if all(_place(each, term, loose=True) == ABSENT for each in everything())
    )


@cache
def _names() -> frozenset[str]:
    return frozenset(name for each in everything() for name in each.names)


def _place(entry: Found, term: str, *, loose: bool = False) -> int:
    """Where an entry has a term: its name, words of it, its first sentence, its text, or nowhere (`ABSENT`).

    loose: whether `balancing` is found in `balance`, too.
    """
    fits: tuple[Callable[[str], bool], ...] = (
        lambda phrase: key(phrase) in entry.names,
        lambda phrase: bool(entry.names & ways_to_say(phrase)),
        lambda phrase: says(entry.name, phrase),
        lambda phrase: says(entry.about, phrase),
        lambda phrase: says(entry.whole, phrase),
    )
    ways = (term, ENDING.sub("", term)) if loose else (term,)
    return next((place for place, fit in enumerate(fits) if any(map(fit, ways))), ABSENT)


@cache
def everything() -> tuple[Found, ...]:
    """Parts, models, settings, studies, claims, commands and pages."""
    parts = (_variants, _presets, _settings, _studies, _claims, _commands, _pages)
    return tuple(each for part in parts for each in part())


def _settings() -> Iterator[Found]:
    """Settings, once for the parts of an axis that have it, and for each whole; and their values that have a name."""
    owners: dict[tuple[str, str], list[str]] = {}
    about: dict[tuple[str, str], str] = {}
    values: dict[str, list[str]] = {}
    every: list[tuple[str, str, type[BaseModel]]] = [
        *((name, name, cls) for name, cls in (WHOLES | OF_ARMS).items()),
        ("study", "study", StudySections),
        ("budget", "budget", Budget),
    ]
    every += [(axis, f"{axis} {name}", cls) for axis, of in catalogued().items() for name, (_, cls) in of.items()]
    for axis, owner, cls in every:
        said = descriptions(cls)
        for name, setting in cls.model_fields.items():
            if name not in ("kind", "source"):
                owners.setdefault((name, axis), []).append(owner)
                about[name, axis] = about.get((name, axis)) or said.get(name, "")
                values.setdefault(name, []).extend(named_values(setting.annotation))
    for name, part in (WHOLES | OF_ARMS).items():
        yield Found("setting", name, " ".join((part.__doc__ or "").partition("\n\n")[0].split()), f"ablate zoo {name}")
    for (name, axis), of in owners.items():
        yield Found("setting", name, f"{about[name, axis]} ({_some(of)})".strip(), f"ablate zoo {name}", " ".join(of))
    for name, named in values.items():
        where = _some([owner for (setting, _), of in owners.items() if setting == name for owner in of])
        for value in dict.fromkeys(named):
            yield Found("value", f"{name}: {value}", f"a value of {name} ({where})", f"ablate zoo {name}")


def _some(owners: list[str]) -> str:
    return ", ".join(owners[:3]) + (f" and {len(owners) - 3} more" if len(owners) > 3 else "")


def _variants() -> Iterator[Found]:
    for axis, of in catalogued().items():
        for name, (documented, _) in of.items():
            first, _, rest = (documented.__doc__ or "").partition("\n\n")
            yield Found("part", f"{axis}: {name}", " ".join(first.split()), f"ablate zoo {name}", rest)


def _presets() -> Iterator[Found]:
    for name in presets():
        chosen = preset(name)
        yield Found("model", name, f"{chosen.year}, {chosen.source}", f"ablate zoo {name}", chosen.note or "")


def _studies() -> Iterator[Found]:
    for name in shipped():
        data = read_study(name).document.data
        arms = " ".join(map(str, data.get("arms", ())))
        yield Found("study", name, str(data["question"]), f"ablate plan {name}", arms)


def _claims() -> Iterator[Found]:
    for each in claims():
        text = " ".join(map(str, each.model_dump(exclude_defaults=True).values()))
        yield Found("claim", each.id, each.claim, f"ablate claims {each.id}", text)


def _commands() -> Iterator[Found]:
    for name, place in COMMANDS.items():
        said, _, rest = (importlib.import_module(place).__doc__ or "").partition("\n")
        yield Found("command", name, said, f"ablate {name} --help", rest)


def _pages() -> Iterator[Found]:
    """Sections of the documentation."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        heads = [*HEADING.finditer(text)]
        for here, after in zip(heads, [*heads[1:], None], strict=True):
            body = text[here.end() : after.start() if after else None]
            said = f"{path.stem}: {here[1]}".replace("`", "")
            yield Found("page", said, "", f"docs/{path.name}", body)
