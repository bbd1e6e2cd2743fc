"""The `study` argument of public functions, and clashes between names of studies in a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ablate.study.problems import Place, Problem, StudyError
from ablate.study.study import Study
from store import Store
from store.documents import SearchDocument, StudyDocument

StudyLike = str | Path | Mapping[str, object] | Study
"""A path, the name of a shipped study, a mapping with the keys of a study file, or a `Study`."""


def refuse_namesake(study: Study, found: StudyDocument | SearchDocument | None, store: Store) -> None:
    """Raise StudyError if `found`, the store's document under the name of `study`, belongs to another study.

    A file that was moved, copied unchanged or edited remains the same study. A study written in Python has no path: all
    such studies of one name are the same study.
    """
    if found is None or found.source == study.text or _same_place(found.path, study.path):
        return
    other = found.path or "one written in Python"
    reason = (
        f"the store {store.root} has the report of another study of this name, {other}: rename one of the two, or use"
        " another store"
    )
    raise StudyError([Problem(Place(study.written.place), "", reason)])


def _same_place(stored: str | None, path: Path | None) -> bool:
    if stored is None or path is None:
        return stored is None and path is None
    return not Path(stored).exists() or Path(stored).samefile(path)
