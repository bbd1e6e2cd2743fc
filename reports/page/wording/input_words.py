"""Data, vocabulary and context of a study in words."""

from __future__ import annotations

from collections.abc import Iterator

from reports.judge.reading.inputs import Inputs

SOURCES = {
    "prose": "English prose",
    "stdlib": "Python's standard library",
    "files": "the study’s own text files",
    "tokens": "the study’s own token files",
    "mixture": "a mixture of texts",
}
"""Sources whose names do not explain themselves. Other sources are data sets and synthetic tasks."""


def inputs(found: Inputs) -> Iterator[str]:
    """`English prose`, `vocabulary 1,024`, `context 128`, as far as known."""
    if found.sources:
        yield " and ".join(map(source, found.sources))
    for name, values in (("vocabulary", found.vocabularies), ("context", found.contexts)):
        if values:
            yield f"{name} {' to '.join(dict.fromkeys(f'{each:,}' for each in (values[0], values[-1])))}"


def source(name: str) -> str:
    return SOURCES.get(name, name)
