"""Tests replace public names only, so that what a module keeps to itself can change without them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
REPLACING = {"setattr", "delattr", "setitem", "delitem", "object", "patch"}
"""Methods of `monkeypatch` and of `unittest.mock.patch` that replace a name."""
OF_TORCH = {"_validate_device"}
"""Names that torch keeps to itself, for which it has no other place to intervene."""


def replaced(tree: ast.AST) -> Iterator[str]:
    """Names that calls replace: `name` in `setattr(owner, "name", …)`, and in `setattr("module.name", …)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REPLACING:
            named = (each.value for each in node.args[:2] if isinstance(each, ast.Constant))
            yield from (each.rpartition(".")[2] for each in named if isinstance(each, str))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_tests_replace_no_private_names() -> None:
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in replaced(ast.parse(path.read_text(encoding="utf-8")))
        if is_private(name) and name not in OF_TORCH
    }
    assert not found


def test_a_private_name_is_found_in_either_form() -> None:
    code = 'monkeypatch.setattr(module, "_one", 1)\nmonkeypatch.setattr("a.b._two", 2)\npatch.object(Class, "three", 3)'
    assert list(filter(is_private, replaced(ast.parse(code)))) == ["_one", "_two"]
