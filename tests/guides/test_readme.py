"""docs/parts.md names every part that a model can be made of, and no part that there is not."""

from __future__ import annotations

import re

import pytest

from tests.guides.guide import ROOT
from zoo import presets
from zoo.block_spec import BlockSpec
from zoo.settings import registry
from zoo.spec import ModelSpec

FOLDERS = ("mixers", "sparsities", "positions", "positions.scalings", "ffns", "norms", "residuals", "caches")


def named() -> set[str]:
    """Names in code on the page on parts."""
    return set(re.findall(r"`(\w+)`", (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")))


def test_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variant_is_named(folder: str) -> None:
    assert set(registry.members(f"zoo.{folder}")) <= named()


def test_nothing_is_named_that_there_is_not() -> None:
    variants = {name for folder in FOLDERS for name in registry.members(f"zoo.{folder}")}
    settings = {*ModelSpec.model_fields, *BlockSpec.model_fields}
    assert named() <= variants | settings | set(presets.names())
