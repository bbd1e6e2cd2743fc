"""Top-level names of this project that another distribution may have as well, such as `evals`.

Looked at whenever `ablate` is imported, so nothing is imported for it and little is read: where three names lead, the
list of files that pip keeps, and the listings of three folders.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

SHARED = ("zoo", "evals", "reports")


def warn_of_clashes() -> None:
    """Warn of each clash, at the line that imports ablate."""
    for clash in clashes(Path(__file__).resolve().parent.parent):
        warnings.warn(f"{clash}; docs/installing.md says how to live with it", stacklevel=3)


def clashes(root: Path) -> Iterator[str]:
    """Packages that belong to another distribution than the ablate in `root`."""
    sizes = _installed(root)
    for name in SHARED:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None or Path(origin).resolve() != root / name / "__init__.py":
            yield f"`import {name}` finds {origin or 'nothing'}, not the package of ablate in {root}"
        elif sizes is not None and (path := _foreign(root, name, sizes)):
            yield f"another distribution has files in the package {name} of ablate: {path}"


def _installed(root: Path) -> dict[str, str] | None:
    """Sizes by path of the files that pip installed in our packages; None for a checkout."""
    record = next(root.glob("ablate_lm-*.dist-info/RECORD"), None)
    if record is None:
        return None
    lines = record.read_text(encoding="utf-8").splitlines()
    rows = [line.rsplit(",", 2) for line in lines if line.startswith(SHARED)]
    return {path: size for path, _, size in rows}


def _foreign(root: Path, name: str, sizes: Mapping[str, str]) -> str | None:
    """A file of the package that is not ours, or that was ours and was overwritten."""
    start = f"{name}/__init__.py"
    if sizes.get(start) != str((root / start).stat().st_size):
        return start
    ours = {path.split("/", 2)[1] for path in sizes if path.startswith(f"{name}/")}
    others = {path.name for path in (root / name).iterdir()} - ours - {"__pycache__"}
    return f"{name}/{min(others)}" if others else None
