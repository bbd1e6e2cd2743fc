"""`ablate.report`: re-render pages from the store alone."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import Literal

import reports
from store import AblateError, Store, StoreError, StudyFolder
from store.documents.shell import from_here
from store.extensions import modules_of

Kind = Literal["study", "search", "store"]


def report(path: str | Path) -> Path:
    """Re-render reports from the store alone: of one study, of one search, or of a whole store with an index.

    Args:
        path: a study's folder in a store, such as `runs/studies/norm_placement-cpu`, a search's folder, or a store.

    Returns:
        The page: one self-contained HTML file.

    Raises:
        AblateError: nothing at `path` has a report, or it is damaged.

    Example:
        >>> ablate.report("runs")
        PosixPath('runs/index.html')
    """
    folder, kind = reported(path)
    try:
        if kind == "study":
            return reports.render(folder)
        for wing in modules_of(__name__):
            page: Path = wing.render_site(folder) if kind == "store" else wing.render_other(folder)
            return page
        raise AblateError(f"{folder}: what writes the page of a {kind} is not installed")
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        store = folder if kind == "store" else Store.of_study(folder).root
        remedy = f"`ablate serve {shlex.quote(from_here(store))}` shows a store's pages without writing any"
        raise StoreError(f"{error.filename}: cannot be written ({error.strerror}): {remedy}") from error


def reported(path: str | Path) -> tuple[Path, Kind]:
    """The folder at a path, or of the file there, and its kind. Raises AblateError."""
    folder = Path(path).parent if Path(path).is_file() else Path(path)
    if (folder / "search.json").is_file():
        return folder, "search"
    if Store(folder).exists:
        return folder, "store"
    if StudyFolder(folder).exists:
        return folder, "study"
    raise AblateError(f"{path} is not a study, search or store: it has no study.json, no search.json and no studies/")
