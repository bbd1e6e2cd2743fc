"""Papers whose tables are replicated: the study files of `studies/papers`, by name or arXiv number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ablate.study.written import SHIPPED, read_study
from store.errors import ArgumentError
from zoo.errors import did_you_mean

FOLDER = SHIPPED / "papers"
ARXIV = re.compile(r"(?:arXiv:)?(\d{4}\.\d{4,5})(?:v\d+)?", re.IGNORECASE)


def papers() -> dict[str, str]:
    """Source of the table of each shipped paper, by name."""
    return {path.stem: _table(path)["source"] for path in sorted(FOLDER.glob("*.yaml"))}


def find_paper(paper: str | Path) -> Path:
    """The study file of a paper, given as a file, a name or an arXiv number. Raises ArgumentError."""
    path, number = Path(paper), ARXIV.fullmatch(str(paper))
    if path.suffix in (".yaml", ".yml"):
        _table(path)
        return path
    sources = papers()
    found = [name for name, source in sources.items() if name == str(paper) or (number and number[1] in source)]
    if not found:
        near = did_you_mean(str(paper), sources) or f"; shipped: {', '.join(sources)}"
        raise ArgumentError("paper", f"no shipped paper has this name or number{near}", str(paper))
    return FOLDER / f"{found[0]}.yaml"


def _table(path: Path) -> Any:
    """The section `published` of a study file, as written. Raises ArgumentError if there is none."""
    found = read_study(path).document.data.get("published")
    if found is None:
        raise ArgumentError("paper", "needs a section `published`, the table to replicate", str(path))
    return found
