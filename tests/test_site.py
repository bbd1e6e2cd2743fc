"""The documentation site builds without a broken link, and its reference has every command, setting and variant."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
import zoo
from ablate.cli import COMMANDS
from ablate.wings.prepare.schema import study_schema
from tests.reports.browsing import CHROMIUM, no_chromium, playwright
from tests.test_imports import ROOT
from zoo.conformance.checking import checkable

NOT_OF_THEIR_OWN = ("base", "arms", "factors", "grid", "scales")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("material", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_reference_is_whole(site: Path) -> None:
    def words(page: str) -> str:
        found = (path.read_text(encoding="utf-8") for path in (site / "reference" / page).rglob("index.html"))
        return html.unescape(re.sub(r"<[^>]+>", "", "\n".join(found)))

    commands, settings, variants, python = map(words, ("commands", "settings", "variants", "python"))
    assert all(f"usage: ablate {name} " in commands for name in COMMANDS)
    keys = [key for key in study_schema()["properties"] if key.partition(".")[0] not in NOT_OF_THEIR_OWN]
    assert len(keys) > 50 and all(re.search(rf"^{re.escape(key)}$", settings, re.MULTILINE) for key in keys)
    kinds = checkable()
    assert len(kinds) > 50 and all(re.search(rf": {kind}\b", variants) for kind in kinds)
    assert all(f"ablate.{name}" in python for name in ablate.__all__ if name != "__version__")
    assert all(f"zoo.{name}" in python for name in zoo.__all__ if callable(getattr(zoo, name)))
    assert not re.search(r"(src|href)=\"https?://fonts", (site / "index.html").read_text(encoding="utf-8"))


MOST_PIXELS = 6000
LARGEST = 25
"""Pages by the size of their files that are opened; the others have less on them."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@no_chromium
def test_no_page_is_taller_than_seven_screens(site: Path) -> None:
    """The atlas has a style of its own, and is no page of the guide."""
    pages = [page for page in site.rglob("index.html") if "claims" not in page.relative_to(site).parts]
    largest = sorted(pages, key=lambda page: -page.stat().st_size)[:LARGEST]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        heights = {}
        for page in largest:
            opened.goto(page.as_uri(), wait_until="domcontentloaded")
            heights[str(page.relative_to(site))] = opened.evaluate("document.documentElement.scrollHeight")
        browser.close()
    assert {page: height for page, height in heights.items() if height > MOST_PIXELS} == {}


@pytest.mark.slow
def test_search_ranks_guides_above_logs(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    boosts = {each["location"].partition("#")[0]: each.get("boost", 1) for each in found}
    logs = [boost for page, boost in boosts.items() if page.startswith("studies/LOG/")]
    assert len(logs) > 50 and max(logs) < min(boosts["studies/"], boosts["tuning/"], boosts["reference/settings/"])
