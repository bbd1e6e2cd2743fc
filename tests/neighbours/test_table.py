"""The table of neighbours names tests that exist and that every session runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.neighbours.table import KEYS, NEIGHBOURS
from tests.test_imports import ROOT
from tests.zoo.hf.test_published import PUBLISHED


@pytest.mark.processes
def test_every_neighbour_has_a_test() -> None:
    files = sorted({each.test.partition("::")[0] for each in NEIGHBOURS})
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-v", "-q", "-p", "no:cacheprovider", *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert listed.returncode == 0, listed.stdout[-2000:]
    found = {line.strip() for line in listed.stdout.splitlines() if "::" in line}
    found |= {name.partition("[")[0] for name in found} | {name.partition("::")[0] for name in found}
    assert [each for each in NEIGHBOURS if each.test not in found] == []


@pytest.mark.parametrize("name", KEYS)
def test_the_published_configs_have_the_keys(name: str) -> None:
    config = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    assert set(KEYS[name].split()) <= config.keys()
