"""docs/faults.md names tests that exist, and marks those that are slow."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/\S+\.py)::(\w+)`(\*?)", (ROOT / "docs/faults.md").read_text(encoding="utf-8"))


def test_faults_are_listed() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize(("file", "name", "star"), sorted(set(NAMED)))
def test_a_fault_has_its_test(file: str, name: str, star: str) -> None:
    found = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    (test,) = (each for each in found if isinstance(each, ast.FunctionDef) and each.name == name)
    marks = {ast.unparse(mark) for mark in test.decorator_list}
    assert ("pytest.mark.slow" in marks) == bool(star)
