"""The handbook: claims of courses, surveys and papers about transformers, and their tests here; the atlas shows them.

Every file of `studies/claims` is a topic. A claim of a study may refer to an entry by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator

from ablate.study.complaints import Problem, StudyError, complaints
from ablate.study.written import SHIPPED
from ablate.study.yamlfile import YamlDocument, read_yaml
from store.documents._document import Part
from store.documents.claims import Sizes
from zoo.vocabulary import says

ID = r"[a-z0-9]+(-[a-z0-9]+)*"
Words = Annotated[str, Field(min_length=1)]
Many = Annotated[tuple[Words, ...], Field(strict=False)]

Literature: TypeAlias = Literal["sound", "disputed", "wrong as taught"]
"""Standing in the literature. `disputed`: contradicted, or taught without evidence. `wrong as taught`: courses or
surveys print it and are mistaken."""
Grade: TypeAlias = Literal["shows small", "under a condition", "must tie", "arithmetic", "not at this size"]
"""Expected outcome at 1 to 100 M parameters: the effect shows; it shows only under the conditions of the entry; no
difference shows, and a report that names a winner is wrong; it follows by arithmetic; models this small cannot show
it."""
Answer: TypeAlias = Literal["study", "part of a study", "exact check", "planned", "nothing"]
"""Kind of test: a study, a study that leaves part of the claim open, a computation or unit test, arms not yet written
into a study, or none, for a stated reason."""


class HandbookClaim(Part):
    """A claim about transformers: its source, its standing, and its test."""

    id: Annotated[str, Field(pattern=f"^{ID}$")]
    topic: Words
    claim: Annotated[str, Field(pattern=r"^[^a-z].*\.$")]
    """One sentence."""
    figure: Words | None = None
    """Published numbers, or the formula."""
    unchecked: bool = False
    """Whether the figure is quoted from memory."""
    source: Words | None = None
    """Papers, with their arXiv identifiers; null if none is known."""
    where: Words | None = None
    """Sizes, data or other conditions under which it was published, or under which it holds."""
    sizes: Sizes = ()
    """Model sizes of these papers, in parameters; empty if unknown."""
    standing: Literature = "sound"
    evidence: Words | None = None
    """Evidence that it is disputed or wrong."""
    grade: Grade
    studies: Many = ()
    """Shipped studies that test it."""
    open: Words | None = None
    """Part of the claim that these studies and checks leave untested."""
    exact: Many = ()
    """Tests of this project (`tests/FILE.py::NAME`) and commands (`ablate …`) that settle it without training."""
    planned: Words | None = None
    """Baseline, arms and measure of a study that could be written with today's features."""
    why_not: Words | None = None
    """Why nothing tests it."""

    @property
    def answer(self) -> Answer:
        """Kind of test that this project has for it."""
        if self.studies:
            return "part of a study" if self.open else "study"
        return "exact check" if self.exact else "planned" if self.planned else "nothing"

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that test it, in the order of its studies and exact checks."""
        checks = (f"pytest {each}" if each.startswith("tests/") else each for each in self.exact)
        return (*(f"ablate run {study}" for study in self.studies), *checks)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        tested = bool(self.studies or self.exact)
        if tested + (self.planned is not None) + (self.why_not is not None) != 1:
            raise ValueError("needs exactly one of tests (`studies` or `exact`), `planned` and `why_not`")
        if self.open and not tested:
            raise ValueError("`open` needs `studies` or `exact`")
        if self.unchecked and self.figure is None:
            raise ValueError("`unchecked` needs `figure`")
        if self.standing != "sound" and self.evidence is None:
            raise ValueError(f"`standing: {self.standing}` needs `evidence`")
        return self


FOLDER = SHIPPED / "claims"


@cache
def handbook() -> Mapping[str, HandbookClaim]:
    """Every entry by its id, topic by topic. Raises StudyError for a damaged file."""
    entries: dict[str, HandbookClaim] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        document = read_yaml(path)
        for name in document.data:
            if name in entries:
                where = f"given twice (also in {entries[name].topic})"
                raise StudyError([Problem(document.keys[(name,)], name, where)])
            entries[name] = _entry(name, path, document)
    return entries


def _entry(name: str, path: Path, document: YamlDocument) -> HandbookClaim:
    data = {"id": name, "topic": path.stem.replace("_", " "), **document.data[name]}
    try:
        return HandbookClaim.model_validate(data)
    except ValidationError as error:
        found = complaints(error, data, HandbookClaim)
        at = document.keys[(name,)]
        raise StudyError(
            Problem(document.values.get((name, *keys), at), ".".join((name, *keys)), reason, kind)
            for keys, reason, kind in found
        ) from error


def claims(*words: str) -> tuple[HandbookClaim, ...]:
    """Claims of the handbook, with their sources, their standing in the literature and their tests here.

    Args:
        words: words or phrases, such as "rope" and "must tie": together one phrase, or else a claim must contain them
            all; or one claim's id; none for all claims.

    Returns:
        The matching claims, sorted by topic; empty if there are none.

    Raises:
        StudyError: a file of the handbook is damaged.

    Example:
        >>> [claim.commands for claim in ablate.claims("norm-center")]
        [('ablate run norm_kind',)]
    """
    if len(words) == 1 and words[0] in handbook():
        return (handbook()[words[0]],)
    texts = {entry: _text(entry) for entry in handbook().values()}
    together = tuple(entry for entry, text in texts.items() if says(text, " ".join(words)))
    return together or tuple(entry for entry, text in texts.items() if all(says(text, phrase) for phrase in words))


@cache
def _text(entry: HandbookClaim) -> str:
    """Text of an entry, with words for its standing and its test: `tested by nothing`."""
    said = entry.model_dump(exclude_defaults=True).values()
    return " ".join((*map(str, said), entry.standing, f"tested by {entry.answer}"))
