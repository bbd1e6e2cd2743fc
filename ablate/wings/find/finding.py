"""`ablate.find`: what the words of papers are called here, and where it is."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel

from ablate.commands import COMMANDS
from ablate.study.budget_spec import Budget
from ablate.study.sections import StudySections
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
        phrases: words as papers have them, such as "QK-norm", "sliding window" or "weight tying". Together they are
            one phrase; failing that, all must be said.

    Returns:
        What was found: names first, then first sentences, then texts; empty if nothing was.

    Raises:
        PluginError: a plug-in among the parts cannot be used.

    Example:
        >>> ablate.find("weight tying")[0].name
        'tie_embeddings'
    """
    whole = " ".join(phrases)
    found = [(rank, each) for each in everything() if (rank := _rank(each, [whole])) is not None]
    if not found:
        parts = [word for phrase in phrases for word in phrase.split()]
        found = [(rank, each) for each in everything() if (rank := _rank(each, parts)) is not None]
    return tuple(each for _, each in sorted(found, key=lambda pair: pair[0]))


def _rank(entry: Found, phrases: Sequence[str]) -> int | None:
    """Rank of an entry that fits by its name, words of its name, its first sentence, or its text; None if none does."""
    fits: tuple[Callable[[str], bool], ...] = (
        lambda phrase: key(phrase) in entry.names,
        lambda phrase: bool(entry.names & ways_to_say(phrase)),
        lambda phrase: says(entry.name, phrase),
        lambda phrase: says(entry.about, phrase),
        lambda phrase: says(entry.whole, phrase),
    )
    return next((rank for rank, fit in enumerate(fits) if all(map(fit, phrases))), None)


@cache
def everything() -> tuple[Found, ...]:
    """Settings, models, studies, claims, commands and pages."""
    parts = (_settings, _variants, _presets, _studies, _claims, _commands, _pages)
    return tuple(each for part in parts for each in part())


def _settings() -> Iterator[Found]:
    """Settings, each once, with the variants that have it; and their values that have a name."""
    owners: dict[str, list[str]] = {}
    about: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    every: list[tuple[str, type[BaseModel]]] = [
        *(WHOLES | OF_ARMS).items(),
        ("study", StudySections),
        ("budget", Budget),
    ]
    every += [(f"{axis} {name}", cls) for axis, of in catalogued().items() for name, (_, cls) in of.items()]
    for owner, cls in every:
        said = descriptions(cls)
        for name, setting in cls.model_fields.items():
            if name not in ("kind", "source"):
                owners.setdefault(name, []).append(owner)
                about[name] = about.get(name) or said.get(name, "")
                values.setdefault(name, []).extend(named_values(setting.annotation))
    for name, part in (WHOLES | OF_ARMS).items():
        yield Found("setting", name, " ".join((part.__doc__ or "").partition("\n\n")[0].split()), f"ablate zoo {name}")
    for name, of in owners.items():
        where = ", ".join(of[:3]) + (f" and {len(of) - 3} more" if len(of) > 3 else "")
        yield Found("setting", name, f"{about[name]} ({where})".strip(), f"ablate zoo {name}", " ".join(of))
        for value in dict.fromkeys(values[name]):
            yield Found("value", f"{name}: {value}", f"a value of {name} ({where})", f"ablate zoo {name}")


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
