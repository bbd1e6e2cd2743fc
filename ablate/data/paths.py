"""Paths and globs as people write them in a study."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from store.errors import DataError

SHOWN = 5
"""Maximum number of file names that a message lists."""


def expanded(path: str, base: Path) -> Path:
    """`path` with `~` and `$VARIABLES` expanded; relative paths start from `base`.

    Raises:
        DataError: an environment variable in it is not set.
    """
    text = os.path.expandvars(path)
    unset = re.search(r"\$(\w+|\{\w+\})", text)
    if unset:
        raise DataError(f"environment variable {unset[1].strip('{}')} is not set (in {path!r})")
    return base / Path(text).expanduser()


def matches(patterns: tuple[str, ...], base: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """The files that match any of the globs (`**` crosses folders), each once, in order. The part of a pattern that
    exists is taken literally, brackets included. wanted: filter for files below a folder that a pattern matches.

    Raises:
        DataError: a pattern matches no file.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = expanded(pattern, base)
        # The part of the pattern that exists is taken literally.
        known = _existing(path)
        escaped = str(Path(glob.escape(str(known))) / path.relative_to(known))
        there = list(map(Path, sorted(glob.glob(escaped, recursive=True))))  # noqa: PTH207
        files = [each for each in there if each.is_file()]
        if not files:  # a pattern that matches files too, such as **, needs no walk through the folders
            files = [file for each in there for file in sorted(each.rglob("*")) if file.is_file() and wanted(file)]
        if not files:
            raise DataError(f"no file matches {pattern!r} (looked for {path}): {_instead(path, there)}")
        found.update(dict.fromkeys(files))
    return list(found)


def _existing(path: Path) -> Path:
    """`path`, or its nearest existing parent."""
    return next((each for each in (path, *path.parents) if each.exists()), Path())


def _instead(path: Path, matched: list[Path]) -> str:
    """Describe the files that exist in place of the wanted one."""
    if matched:
        others = [file for each in matched for file in sorted(each.rglob("*")) if file.is_file()]
        reason = "the folder has no file of a known kind"
        return f"{reason}; match its files with a glob: {_some(others)}" if others else reason
    known = _existing(path)
    return f"{known} contains {_some(sorted(known.iterdir()))}" if known.is_dir() else f"{known} is not a folder"


def _some(paths: list[Path]) -> str:
    """The first `SHOWN` names."""
    return ", ".join(path.name for path in paths[:SHOWN]) + ", …" * (len(paths) > SHOWN) or "nothing"
