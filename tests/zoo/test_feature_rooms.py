"""A feature is one room: few files beside its own know it by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import zoo

ROOT = Path(zoo.__file__).parent
MOST = 4
WORDS = {
    "encoder": "a second stack, with costs, a cache and initial values of its own",
    "chunks": "also what scans and heads are computed in",
}
"""Names that are words of other things, too, and which."""
FEATURES = sorted(path.stem for folder in ("features", "block_features") for path in (ROOT / folder).glob("[!_]*.py"))


@pytest.mark.parametrize("name", [name for name in FEATURES if name not in WORDS])
def test_a_feature_is_named_in_few_files(name: str) -> None:
    """Its own, the settings of a model or of a block, and what converts or orders it."""
    word = re.compile(rf"\b{name}\b")
    named = [path.relative_to(ROOT) for path in ROOT.rglob("*.py") if word.search(path.read_text(encoding="utf-8"))]
    assert 1 <= len(named) <= MOST, named


def test_there_are_features() -> None:
    assert len(FEATURES) > 15 and set(WORDS) < set(FEATURES)
