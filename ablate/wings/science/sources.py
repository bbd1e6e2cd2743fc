"""Sources of the atlas apart from recorded results: study files, the zoo's catalogue, models and the handbook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.wings.catalogue.model_table import PublishedModel
from ablate.wings.catalogue.parts import Plain
from ablate.wings.science.handbook_claim import HandbookClaim
from store.documents import StudyClaim

ARXIV = re.compile(r"arXiv:(\d\d)(\d\d)\.\d{4,5}")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")

BROKEN = 80
"""A documentation line longer than this continues in the next one."""


@dataclass(frozen=True)
class StatedStudy:
    """A study file: its question, its arms' edits by path, its claims, the scale that it needs if it names one, and
    what its arms are called in words."""

    name: str
    question: str
    citation: str
    arms: Mapping[str, Plain]
    claims: tuple[StudyClaim, ...] = ()
    needs: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class VariantSetting:
    name: str
    default: str
    doc: str


@dataclass(frozen=True)
class CatalogueEntry:
    """A variant of the zoo with its documentation and settings."""

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
        """The first paragraph as one line."""
        return " ".join(self.doc.partition("\n\n")[0].split())

    @property
    def lead(self) -> str:
        """The first sentence."""
        return re.split(r"(?<=\.)\s+(?=[A-Z])", self.summary, maxsplit=1)[0]

    @property
    def text(self) -> str:
        """The documentation with wrapped lines joined."""
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
        """The first sentence with an equation; empty if the documentation has none."""
        sentences = re.split(r"(?<=[.:])\s+(?=[A-Z(])", self.summary) + self.doc.splitlines()
        return next((each.strip().rstrip(".,:") for each in sentences if " = " in each or " ← " in each), "")

    @property
    def papers(self) -> tuple[str, ...]:
        """arXiv identifiers in the documentation."""
        return tuple(dict.fromkeys(found.group() for found in ARXIV.finditer(self.doc)))


@dataclass(frozen=True)
class Sources:
    """All sources apart from results."""

    studies: Sequence[StatedStudy] = ()
    catalogue: Sequence[CatalogueEntry] = ()
    models: Sequence[PublishedModel] = ()
    handbook: Sequence[HandbookClaim] = ()


def year_of(source: str | None) -> int | None:
    """Year of the latest publication that a citation names; None if it names none."""
    text = source or ""
    years = [2000 + int(found.group(1)) for found in ARXIV.finditer(text)] or [int(y) for y in YEAR.findall(text)]
    return max(years, default=None)
