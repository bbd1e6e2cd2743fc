"""Sources of the atlas apart from recorded results: study files, the papers whose tables they replicate, the zoo's
catalogue, models and the handbook.

Papers are the study files of `studies/papers`, by name or arXiv number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.study.written import SHIPPED, read_study
from ablate.wings.catalogue.model_table import PublishedModel
from ablate.wings.catalogue.parts import Plain
from ablate.wings.science.handbook import HandbookClaim
from store.documents import StudyClaim
from store.errors import ArgumentError
from zoo.errors import did_you_mean

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


PAPERS = SHIPPED / "papers"
ARXIV_NUMBER = re.compile(r"(?:arXiv:)?(\d{4}\.\d{4,5})(?:v\d+)?", re.IGNORECASE)


def papers() -> dict[str, str]:
    """Source of the table of each shipped paper, by name."""
    return {path.stem: _published(path)["source"] for path in sorted(PAPERS.glob("*.yaml"))}


def find_paper(paper: str | Path) -> Path:
    """The study file of a paper, given as a file, a name or an arXiv number. Raises ArgumentError."""
    path, number = Path(paper), ARXIV_NUMBER.fullmatch(str(paper))
    if path.suffix in (".yaml", ".yml"):
        _published(path)
        return path
    sources = papers()
    found = [name for name, source in sources.items() if name == str(paper) or (number and number[1] in source)]
    if not found:
        near = did_you_mean(str(paper), sources) or f"; shipped: {', '.join(sources)}"
        raise ArgumentError("paper", f"no shipped paper has this name or number{near}", str(paper))
    return PAPERS / f"{found[0]}.yaml"


def _published(path: Path) -> Any:
    """The section `published` of a study file, as written. Raises ArgumentError if there is none."""
    found = read_study(path).document.data.get("published")
    if found is None:
        raise ArgumentError("paper", "needs a section `published`, the table to replicate", str(path))
    return found
