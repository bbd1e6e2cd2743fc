"""The feature of docs/adding_a_feature.md is the one in the tree, and its order of parts is that of the parts."""

from __future__ import annotations

import re

import zoo.model_settings  # noqa: F401 (which names every feature)
from tests.guides.guide import ROOT
from zoo.features import FeatureLayer

GUIDE = (ROOT / "docs/adding_a_feature.md").read_text(encoding="utf-8")


def test_the_code_is_that_of_the_tree() -> None:
    feature, setting = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert feature == (ROOT / "zoo/features/first_stream.py").read_text(encoding="utf-8")
    settings = (ROOT / "zoo/model_settings.py").read_text(encoding="utf-8")
    assert re.sub(r"\s+", " ", setting.strip()) in re.sub(r"\s+", " ", settings)


def test_the_table_of_shells_is_whole() -> None:
    rows = re.findall(r"^\| (\d) \| (.+?) \|", GUIDE, re.MULTILINE)
    told = {(name, int(shell)) for shell, names in rows for name in re.findall(r"`(\w+)`", names)}
    parts = {cls.__module__.rpartition(".")[2]: cls.shell for cls in _below(FeatureLayer) if hasattr(cls, "shell")}
    assert told == set(parts.items())


def _below(cls: type[FeatureLayer]) -> set[type[FeatureLayer]]:
    return {each for below in cls.__subclasses__() for each in (below, *_below(below))}
