"""What takes every process of a parallel test run as long as a hundred tests, worked out by one of them for all."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from zoo.conformance import matrix
from zoo.conformance.combinations import Row, choices, covering, legal, opening
from zoo.conformance.matrix import AxisOption


@cache
def rows_and_opening() -> tuple[list[Row], list[int]]:
    """`covering()` and `opening()`."""
    rows = [{option.axis: option for option in _options(row)} for row in _covering()["rows"]]
    return rows, _covering()["opening"]


@cache
def legal_pairs() -> frozenset[frozenset[AxisOption]]:
    """`legal` of every two choices."""
    return frozenset(frozenset(_options(pair)) for pair in _covering()["legal"])


@cache
def matrix_pairs() -> list[tuple[AxisOption, AxisOption, str | None]]:
    """`matrix.pairs()`."""
    return [(*_options((a, b)), reason) for a, b, reason in _covering()["pairs"]]


@cache
def _covering() -> dict[str, Any]:
    """JSON that one process of a test run makes, and the others read."""
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if test_run is None:
        return _make()
    shared = Path(tempfile.gettempdir()) / f"covering-{test_run}.json"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            shared.write_text(json.dumps(_make()), encoding="utf-8")
    found: dict[str, Any] = json.loads(shared.read_text(encoding="utf-8"))
    return found


def _make() -> dict[str, Any]:
    return {
        "rows": [_names(row.values()) for row in covering()],
        "opening": opening(),
        "legal": [_names(pair) for pair in legal(2, tuple(choices()))],
        "pairs": [[*_names((a, b)), reason] for a, b, reason in matrix.pairs()],
    }


def _names(options: Any) -> list[str]:
    return [str(option) for option in options]


def _options(names: Any) -> tuple[AxisOption, ...]:
    return tuple(_named()[name] for name in names)


@cache
def _named() -> dict[str, AxisOption]:
    """Every choice by its name, which no other has."""
    every = [*itertools.chain(*choices().values())]
    named = {str(option): option for option in every}
    assert len(named) == len(every)
    return named
