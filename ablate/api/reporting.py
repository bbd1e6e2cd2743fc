"""`ablate.report`: re-render pages from the store alone."""

from __future__ import annotations

import errno
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import reports
from store import AblateError, SearchFolder, Store, StoreError, StudyFolder
from store.documents.shell import from_here

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
        if kind == "search":
            return reports.render_other(folder)
        return reports.render_site(folder) if kind == "store" else reports.render(folder)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        store = folder if kind == "store" else Store.of_study(folder).root
        remedy = f"`ablate serve {shlex.quote(from_here(store))}` shows a store's pages without writing any"
        raise StoreError(f"{error.filename}: cannot be written ({error.strerror}): {remedy}") from error


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote, and the keys of figures left out because no Chromium was found."""

    written: list[Path]
    left_out: list[str]


def export_report(path: str | Path, directory: str | Path) -> Exported:
    """Write a study's figures as SVG, using an installed Chromium, and its tables as Markdown and LaTeX.

    Args:
        path: a study's folder in a store.
        directory: where the files go.

    Returns:
        The files, and the figures left out if there is no Chromium.

    Raises:
        AblateError: `path` is not a study, or Chromium failed.

    Example:
        >>> ablate.export_report("runs/studies/norm_placement-cpu", "paper/figures").written
    """
    folder, kind = reported(path)
    if kind != "study":
        example = (Store("STORE") if kind == "search" else Store(folder)).study("NAME", "cpu").path
        raise AblateError(f"{path} is a {kind}: export a study instead, such as {example}")
    return Exported(*reports.export_study(folder, directory))


def reported(path: str | Path) -> tuple[Path, Kind]:
    """The folder at a path, or of the file there, and its kind. Raises AblateError."""
    folder = Path(path).parent if Path(path).is_file() else Path(path)
    if SearchFolder(folder).exists:
        return folder, "search"
    if Store(folder).exists:
        return folder, "store"
    if StudyFolder(folder).exists:
        return folder, "study"
    raise AblateError(f"{path} is not a study, search or store: it has no study.json, no search.json and no studies/")
