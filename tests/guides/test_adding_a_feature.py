"""The feature of docs/adding_a_feature.md, plugged in from its text; and its order of parts is that of the parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import zoo.model_settings  # noqa: F401 (which names every feature)
from tests.guides.guide import ROOT, followed
from zoo.features import FeatureLayer

GUIDE = (ROOT / "docs/adding_a_feature.md").read_text(encoding="utf-8")
CHECKED = """
import contextlib, io
from ablate.cli import main

with contextlib.redirect_stdout(io.StringIO()) as out:
    status = main(["zoo", "--check", "smear_gate", "--quick", "--plugin", "smear_gate.py", "--json"])
found = json.loads(out.getvalue())
from ablate.wings.catalogue.catalogue import whole_catalogue
from ablate.wings.prepare.schema import study_schema
parts = [each for each in whole_catalogue()["variants"]["parts"] if each.get("plugin")]
print(json.dumps([status, found, [each["name"] for each in parts], "smear_gate" in json.dumps(study_schema())]))
"""


@pytest.mark.slow
def test_the_feature_of_the_guide_conforms_and_is_listed(tmp_path: Path) -> None:
    status, found, listed, in_schema = followed("adding_a_feature.md", tmp_path, CHECKED)
    assert status == 0 and found["conforms"]
    assert {each["models"] for each in found["checks"]} == {0, 2} and found["checks"][3]["models"] == 2
    assert listed == ["smear_gate"] and in_schema


def test_the_setting_is_that_of_the_tree() -> None:
    *_, setting = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    settings = (ROOT / "zoo/model_settings.py").read_text(encoding="utf-8")
    assert re.sub(r"\s+", " ", setting.strip()) in re.sub(r"\s+", " ", settings)


def test_the_table_of_shells_is_whole() -> None:
    rows = re.findall(r"^\| (\d) \| (.+?) \|", GUIDE, re.MULTILINE)
    told = {(name, int(shell)) for shell, names in rows for name in re.findall(r"`(\w+)`", names)}
    own = {
        f"zoo.features.{path.stem}" for path in (ROOT / "zoo/features").glob("*.py")
    }  # not those that others plug in
    found = [cls for cls in _below(FeatureLayer) if hasattr(cls, "shell") and cls.__module__ in own]
    assert told == {(cls.__module__.rpartition(".")[2], cls.shell) for cls in found}


def _below(cls: type[FeatureLayer]) -> set[type[FeatureLayer]]:
    return {each for below in cls.__subclasses__() for each in (below, *_below(below))}
