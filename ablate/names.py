"""Clashes of this project's top-level packages with other distributions that have the same names, such as `evals`.

The check runs on every `import ablate`, so it imports nothing and reads little: the import specs of four packages,
pip's list of installed files, and four folder listings.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

SHARED = ("zoo", "store", "evals", "reports")


def warn_of_clashes() -> None:
    """Warn of each clash; the warning points to the line that imports ablate."""
    for clash in clashes(Path(__file__).resolve().parent.parent):
        warnings.warn(f"{clash}; see docs/installing.md", stacklevel=3)


def clashes(root: Path) -> Iterator[str]:
    """A sentence on each of our packages that another distribution shadows, or has written files to."""
    sizes = _installed(root)
    for name in SHARED:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None or Path(origin).resolve() != root / name / "__init__.py":
            yield f"`import {name}` finds {origin or 'nothing'}, not the package of ablate in {root}"
        elif sizes is not None and (path := _foreign(root, name, sizes)):
            yield f"another distribution has installed files in ablate's package {name}: {path}"


def _installed(root: Path) -> dict[str, str] | None:
    """Sizes, by path, of the files that pip installed in the shared packages; None for a checkout."""
    record = next(root.glob("ablate_lm-*.dist-info/RECORD"), None)
    if record is None:
        return None
    lines = record.read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit(",", 2) for line in lines if line.startswith(SHARED)]
    return {path: size for path, _, size in rows}


def _foreign(root: Path, name: str, sizes: Mapping[str, str]) -> str | None:
    """A file of the package that is not ours, or its `__init__.py` if that was overwritten; None if there is none."""
    start = f"{name}/__init__.py"
    if sizes.get(start) != str((root / start).stat().st_size):
        return start
    ours = {path.split("/", 2)[1] for path in sizes if path.startswith(f"{name}/")}
    others = {path.name for path in (root / name).iterdir()} - ours - {"__pycache__"}
    return f"{name}/{min(others)}" if others else None
