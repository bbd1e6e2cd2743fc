"""Sections of a report: one file each, here or in `reports.page.evaluations`. No other list of them exists.

Every file in either folder, or in those that wings add, whose name does not begin with `_` defines one `Section`. Its
`collect` reads frames from the store's documents, its `summarise` makes an object of the class, and that object's
figures appear on the page, in the export and in `result.figures()`, in the order of `place`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar

from reports.judge.findings.study_summary import SectionSummary, StudySummary
from reports.judge.findings.summary import summarise
from reports.judge.reading.collect import collected
from reports.judge.reading.documents import StudyDocuments
from reports.page.figures.base import Figure
from reports.page.figures.drawing import ArmStyle, looks
from store import Store
from store.extensions import added_to

PACKAGES = ("reports.page.sections", "reports.page.evaluations")
MOST_IN_LEGEND = 24
"""Most arms with a legend: with more, it hides the figure, and the page's list of arms serves instead."""


class Section(SectionSummary):
    """A part of a report. An object of a subclass holds one study's findings."""

    place: ClassVar[int]
    """Sort key: sections appear in ascending order."""
    gallery: ClassVar[str] = "Figures"
    """Heading of its figures; figures with the same heading are grouped."""
    gallery_note: ClassVar[str] = ""
    """Text below that heading."""
    title: ClassVar[str] = ""
    """Heading of its `sentences`, or of its `template`."""
    template: ClassVar[str] = ""
    """Template file, for content other than figures and sentences. It receives the `section`."""

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """The section's figures, each with a table of what it shows. They compute nothing new."""
        yield from ()

    def introduction(self, summary: StudySummary) -> str:
        """Text before the section's sentences."""
        return ""

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        """The section's findings in words."""
        yield from ()


@cache
def sections() -> dict[str, type[Section]]:
    """All sections by name, in page order."""
    folders = {package: importlib.import_module(package).__path__ for package in (*PACKAGES, *added_to(__name__))}
    names = [(package, each.name) for package, paths in folders.items() for each in pkgutil.iter_modules(paths)]
    found = []
    for module in (importlib.import_module(f"{of}.{name}") for of, name in names if not name.startswith("_")):
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Section)]
        own = [value for value in classes if value.__module__ == module.__name__]
        if len(own) != 1:
            raise TypeError(f"{module.__name__} must define exactly one Section, found {len(own)}")
        found += own
    return {section.name(): section for section in sorted(found, key=lambda section: (section.place, section.name()))}


def summarise_study(study_dir: Path | str, store: Store | None = None) -> StudySummary:
    """Intervals, paired differences and verdicts of the study in a store's folder, and the findings of every section.
    store: if given, results that it has read are not read again.

    Raises ReportError if there is no study, or the runs must not be compared.
    """
    return summarise_documents(StudyDocuments.of(study_dir, store))


def summarise_documents(documents: StudyDocuments) -> StudySummary:
    """The same from a study's documents."""
    found = tuple(sections().values())
    return summarise(collected(documents, found), found)


def draw(summary: StudySummary) -> tuple[Figure, ...]:
    """All figures for which the summary has data, in page order."""
    return tuple(figure for figures in galleries(summary).values() for figure in figures)


def galleries(summary: StudySummary) -> dict[str, tuple[Figure, ...]]:
    """Figures by heading."""
    style = looks([arm.name for arm in summary.arms])
    found: dict[str, list[Figure]] = {}
    for section in filter(None, map(summary.section, sections().values())):
        if figures := list(section.figures(summary, style)):
            found.setdefault(section.gallery, []).extend(figures)
    if len(style) > MOST_IN_LEGEND:
        for figure in (figure for figures in found.values() for figure in figures):
            figure.drawing.update_layout(showlegend=False)
    return {heading: tuple(figures) for heading, figures in found.items()}
