"""docs/faults.md, docs/sharing.md and SECURITY.md name tests that exist, and mark those that are slow."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.many import over

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
SHARING = (ROOT / "docs/sharing.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/\S+\.py)::(\w+)`(\*?)", PAGE + SHARING + SECURITY)


def test_every_row_names_a_test() -> None:
    tables = re.findall(r"^\|.* \| test \|\n\|---.*\n((?:\|.*\n)+)", PAGE, re.M)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == PAGE.count("| fault |") and len(rows) > 60
    assert [row for row in rows if "`tests/" not in row.rsplit(" | ", 1)[-1]] == []


@over(sorted(set(NAMED)))
def test_a_fault_has_its_test(file: str, name: str, star: str) -> None:
    found = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    (test,) = (each for each in found if isinstance(each, ast.FunctionDef) and each.name == name)
    marks = {ast.unparse(mark) for mark in test.decorator_list}
    assert ("pytest.mark.slow" in marks) == bool(star)
