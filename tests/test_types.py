"""Plain data has a named type: `dict[str, Any]` says nothing of what it holds."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_imports import PACKAGES, ROOT

UNNAMED = re.compile(r"(?:dict|Mapping)\[str, Any\]")
STORE = ROOT / "store"
MOST = 40
"""Places: aliases that say in a docstring what they hold, and keyword arguments of others' functions."""


def places(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{path.relative_to(ROOT)}:{i}" for i, line in enumerate(lines, start=1) if UNNAMED.search(line)]


def test_few_maps_hold_anything() -> None:
    files = [path for package in sorted(PACKAGES) for path in (ROOT / package).rglob("*.py")]
    found = [place for path in files if STORE not in path.parents for place in places(path)]
    assert len(found) <= MOST, f"{len(found)} places; name what a new one holds, or make it a model: {found}"
