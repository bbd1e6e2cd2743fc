"""The table of neighbours names tests that exist and that every session runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from typing import TypeGuard

import pytest

from tests.neighbours.table import KEYS, NEIGHBOURS
from tests.test_imports import ROOT
from tests.zoo.hf.test_published import PUBLISHED


def test_every_neighbour_has_a_test() -> None:
    """Cases of a parametrised test are looked up in the slow suite."""
    named = [each.test.partition("[")[0] for each in NEIGHBOURS]
    assert [name for name in named if name not in _tests(name.partition("::")[0])] == []


@pytest.mark.slow
def test_every_neighbour_has_its_case() -> None:
    files = sorted({each.test.partition("::")[0] for each in NEIGHBOURS})
    words = [sys.executable, "-m", "pytest", "--collect-only", "-v", "-q", "-p", "no:cacheprovider", *files]
    listed = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert listed.returncode == 0, listed.stdout[-2000:]
    found = {line.strip() for line in listed.stdout.splitlines() if "::" in line}
    found |= {name.partition("[")[0] for name in found} | {name.partition("::")[0] for name in found}
    assert [each for each in NEIGHBOURS if each.test not in found] == []


@cache
def _tests(file: str) -> frozenset[str]:
    """The file and the tests in it, as pytest names them; those of the slow suite are not run by every session."""
    functions = [node for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body if _is_run(node)]
    return frozenset([file, *(f"{file}::{node.name}" for node in functions)])


def _is_run(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    return is_test and "pytest.mark.slow" not in map(ast.unparse, node.decorator_list)


@pytest.mark.parametrize("name", KEYS)
def test_the_published_configs_have_the_keys(name: str) -> None:
    config = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    assert set(KEYS[name].split()) <= config.keys()
