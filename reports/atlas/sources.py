"""The sources of the atlas beside recorded results: studies as they are written, and the catalogue of the zoo."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.store.documents import StudyClaim
from ablate.store.documents.handbook import HandbookClaim
from reports.results.document import Plain

ARXIV = re.compile(r"arXiv:(\d\d)(\d\d)\.\d{4,5}")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")

BROKEN = 80
"""A line of documentation longer than this goes on in the next one."""


@dataclass(frozen=True)
class StatedStudy:
    """A study file: its question, its arms' edits by path, and what it claims."""

    name: str
    question: str
    citation: str
    arms: Mapping[str, Plain]
    claims: tuple[StudyClaim, ...] = ()


@dataclass(frozen=True)
class VariantSetting:
    name: str
    default: str
    doc: str


@dataclass(frozen=True)
class CatalogueEntry:
    """A name of the zoo with its documentation, and the settings that it has."""

    axis: str
    name: str
    doc: str
    settings: tuple[VariantSetting, ...] = ()

    @property
    def slug(self) -> str:
        """`mixers-mla`: the name of its page."""
        return f"{self.axis}-{self.name}".replace(".", "-")

    @property
    def summary(self) -> str:
        """The first paragraph in one line."""
        return " ".join(self.doc.partition("\n\n")[0].split())

    @property
    def text(self) -> str:
        """The documentation with each line that was broken for its length joined to the next."""
        joined: list[str] = []
        broken = False
        for line in self.doc.splitlines():
            if broken and line.strip():
                joined[-1] += f" {line.strip()}"
            else:
                joined.append(line)
            broken = len(line) > BROKEN
        return "\n".join(joined)

    @property
    def formula(self) -> str:
        """The first sentence that is an equation; empty where the documentation has none."""
        sentences = re.split(r"(?<=[.:])\s+(?=[A-Z(])", self.summary) + self.doc.splitlines()
        return next((each.strip().rstrip(".,:") for each in sentences if " = " in each or " ← " in each), "")

    @property
    def papers(self) -> tuple[str, ...]:
        """arXiv identifiers that the documentation names."""
        return tuple(dict.fromkeys(found.group() for found in ARXIV.finditer(self.doc)))


@dataclass(frozen=True)
class PublishedModel:
    """A row of the table of models: values by column, which columns its source does not say, and a note."""

    values: Mapping[str, str]
    parts: frozenset[str]
    """Its parts, by setting and kind."""
    assumed: frozenset[str] = frozenset()
    note: str = ""

    @property
    def name(self) -> str:
        return self.values["name"]


@dataclass(frozen=True)
class Sources:
    """Everything beside results."""

    studies: Sequence[StatedStudy] = ()
    catalogue: Sequence[CatalogueEntry] = ()
    models: Sequence[PublishedModel] = ()
    handbook: Sequence[HandbookClaim] = ()


def year_of(source: str | None) -> int | None:
    """The year of the latest publication that a citation names."""
    text = source or ""
    years = [2000 + int(found.group(1)) for found in ARXIV.finditer(text)] or [int(y) for y in YEAR.findall(text)]
    return max(years, default=None)
