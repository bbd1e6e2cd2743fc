"""The page on the architecture names every room that there is, and no other."""

from __future__ import annotations

import re

from tools.size import PACKAGES, ROOT, WINGS

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_every_room_is_in_the_table() -> None:
    """By path, or by name beside a path of the row, whose folder holds it."""
    named = set[str]()
    for row in re.findall(r"^\| ([^|]*`[^|]*) \|", PAGE.partition("## Rooms")[2], re.MULTILINE):
        first, *names = re.findall(r"`([\w/]+)`", row)
        named |= {first, *(name if "/" in name else f"{first}/{name}" for name in names)}
    files = {file.parent.relative_to(ROOT) for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    rooms = {str(room) for room in files if not f"{room}/".startswith(WINGS)}
    # Told with what they hold, or with what holds them.
    within = {"reports", "evals", "reports/page", "zoo/positions/scalings"}
    assert named == rooms - within


def test_every_wing_is_listed() -> None:
    listed = PAGE.partition("\nThe wings")[2].partition("\n## ")[0]
    wings = {init.parent.name for init in (ROOT / "ablate/wings").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)`", listed)) == wings
