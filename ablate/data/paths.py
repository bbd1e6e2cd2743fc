"""Paths and globs as people write them in a study."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from ablate.data.error import DataError


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


def matches(patterns: tuple[str, ...], base: Path) -> list[Path]:
    """The files that any of the globs matches (`**` crosses folders), each once, in order.

    Raises:
        DataError: a pattern matches no file.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = expanded(pattern, base)
        files = [p for p in map(Path, sorted(glob.glob(str(path), recursive=True))) if p.is_file()]  # noqa: PTH207
        if not files:
            hint = f"; it is a folder: write {pattern.rstrip('/')}/*" if path.is_dir() else ""
            raise DataError(f"no file matches {pattern!r} (looked for {path}){hint}")
        found.update(dict.fromkeys(files))
    return list(found)
