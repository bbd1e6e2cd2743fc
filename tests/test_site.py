"""The documentation site builds without a broken link, and its reference has every command, setting and variant."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
import zoo
from ablate.cli import COMMANDS
from ablate.study.schema import study_schema
from tests.test_imports import ROOT
from zoo.conformance.checking import checkable

NOT_OF_THEIR_OWN = ("base", "arms", "factors", "grid", "scales")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_site_builds_and_its_reference_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the docs extra is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    def words(page: str) -> str:
        found = (path.read_text(encoding="utf-8") for path in (tmp_path / "reference" / page).rglob("index.html"))
        return html.unescape(re.sub(r"<[^>]+>", "", "\n".join(found)))

    commands, settings, variants, python = map(words, ("commands", "settings", "variants", "python"))
    assert all(f"usage: ablate {name} " in commands for name in COMMANDS)
    keys = [key for key in study_schema()["properties"] if key.partition(".")[0] not in NOT_OF_THEIR_OWN]
    assert len(keys) > 50 and all(re.search(rf"^{re.escape(key)}$", settings, re.MULTILINE) for key in keys)
    kinds = checkable()
    assert len(kinds) > 50 and all(re.search(rf": {kind}\b", variants) for kind in kinds)
    assert all(f"ablate.{name}" in python for name in ablate.__all__ if name != "__version__")
    assert all(f"zoo.{name}" in python for name in zoo.__all__ if callable(getattr(zoo, name)))
    assert not re.search(r"(src|href)=\"https?://fonts", (tmp_path / "index.html").read_text(encoding="utf-8"))
