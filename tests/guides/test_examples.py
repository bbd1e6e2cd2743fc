"""Every YAML example of README and docs can be read and has settings that exist; no prose is shown as code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from lm_eval.api.task import TaskConfig
from ruamel.yaml import YAML

from ablate.wings.prepare.schema import study_schema
from evals.spec import EvalSpec
from tests.guides.guide import ROOT
from tests.many import over
from zoo.spec import ModelSpec

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SETTINGS = {*study_schema()["properties"], *EvalSpec.model_fields, *ModelSpec.model_fields}
OF_TASKS = {field.name for field in fields(TaskConfig)}
"""Settings of lm-eval's task files, which begin with the task's name."""


def examples() -> Iterator[tuple[str, str, set[str]]]:
    """(page, text, known settings) of each setting shown, with the lines below it: a block may show a setting twice."""
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for setting in re.split(r"\n(?=\S)", block):
                yield str(page.relative_to(ROOT)), setting, OF_TASKS if block.startswith("task:") else SETTINGS


def test_every_example_is_read_and_its_settings_exist() -> None:
    found = list(examples())
    assert len(found) > 40
    for page, text, known in found:
        (setting,) = YAML(typ="safe").load(text)
        assert setting.partition(".")[0] in known, f"{page}: {text}"


@over(PAGES)
def test_no_prose_is_indented_so_far_that_the_site_shows_it_as_code(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.findall(r"\n\n( {4}.*)", prose) == []
    assert re.findall(r"\n\n( +\|.*)", prose) == []  # a table within a list ends the list there
