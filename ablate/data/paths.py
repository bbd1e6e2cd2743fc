"""Paths and globs as people write them in a study."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from ablate.errors import DataError


def expanded(path: str, base: Path) -> Path:
    """`path` with `~` and `$VARIABLES` replaced, taken from `base` where it is relative.

    Raises:
        DataError: an environment variable in it is not set.
    """
    text = os.path.expandvars(path)
    unset = re.search(r"\$(\w+|\{\w+\})", text)
    if unset:
        raise DataError(f"environment variable {unset[1].strip('{}')} is not set (in {path!r})")
    return base / Path(text).expanduser()


def matches(patterns: tuple[str, ...], base: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """The files that any of the globs matches (`**` crosses folders), each once, in order. wanted: which files of a
    folder are meant where a pattern matches the folder itself.

    Raises:
        DataError: a pattern matches no file.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = expanded(pattern, base)
        there = list(map(Path, sorted(glob.glob(str(path), recursive=True))))  # noqa: PTH207
        files = [each for each in there if each.is_file()]
        if not files:  # of a pattern that matches both, such as **, folders are not read once more
            files = [file for each in there for file in sorted(each.rglob("*")) if file.is_file() and wanted(file)]
        if not files:
            hint = ": the folder has no file of a known kind" if there else ""
            raise DataError(f"no file matches {pattern!r} (looked for {path}){hint}")
        found.update(dict.fromkeys(files))
    return list(found)
