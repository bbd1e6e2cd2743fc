"""README is short and its numbers are right; docs/parts.md names every part of a model, and no other."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ablate.study.written import RESULTS
from ablate.wings.catalogue.catalogue import catalogued
from ablate.wings.results.recorded import read
from tests.guides.guide import ROOT
from zoo import presets
from zoo.block_spec import BlockSpec
from zoo.hf._registry import families
from zoo.settings.axis import variants
from zoo.spec import ModelSpec

FOLDERS = ("mixers", "sparsities", "positions", "positions.scalings", "ffns", "norms", "residuals", "caches")


def named() -> set[str]:
    """Names in code on the page on parts."""
    return set(re.findall(r"`(\w+)`", (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")))


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_can_be_read_in_one_sitting() -> None:
    assert len(README.split()) <= 900
    pages = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+\.md[^)]*)\)", README)}
    assert len(pages) <= 14, "docs/pages.md lists the others"


def test_the_table_of_the_zoo_counts_what_there_is() -> None:
    counts = {
        row[1].split(":")[0].split(",")[0]: row[2] for row in re.finditer(r"^\| ([^|]+) \| ([\d ·]+) \|", README, re.M)
    }
    axes = catalogued()
    size = {axis: len(of) for axis, of in axes.items()}
    assert counts == {
        "mixers": f"{size['mixers']}",
        "FFNs and MoE": f"{size['ffns']}",
        "norms · residuals and norm placements": f"{size['norms']} · {size['residuals']}",
        "positions · RoPE scalings": f"{size['positions']} · {size['positions.scalings']}",
        "KV caches · ways to decode": f"{size['caches']} · {size['decoding']}",
        "optimizers": f"{size['optimizers']}",
        "published models": f"{len(presets.names())}",
        "transformers' model types": f"{len(families())}",
    }


def test_a_picture_has_its_caveats_and_findings_are_counted() -> None:
    found = [read(path) for path in sorted(RESULTS.glob("*@*.json"))]
    assert f"[What {len({each.study for each in found})} studies found]" in README
    pictures = re.findall(r"!\[.*\]\(docs/gallery/(\w+)\.webp\)\n\n(\*(?:.+\n)+)", README)
    assert len(pictures) == README.count("![") > 0
    for name, caption in pictures:
        pictured = next(each for each in found if name in (each.study, each.name.replace("@", "_").replace("-", "_")))
        assert not pictured.caveats or "Caveat: " in caption


def test_every_page_of_the_documentation_can_be_reached() -> None:
    told = (ROOT / "docs" / "pages.md").read_text(encoding="utf-8") + README
    inner = {path.name for path in (ROOT / "docs").glob("*.md")}
    linked = set(
        re.findall(
            r"(\w+\.md)",
            told + "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in inner if f"({name})" in told),
        )
    )
    assert inner <= linked


@pytest.mark.slow
@pytest.mark.timeout(3600)  # two installations of PyTorch
@pytest.mark.skipif(
    "ABLATE_TEST_INDEX" not in os.environ, reason="installs PyTorch: set ABLATE_TEST_INDEX=1 to allow it"
)
def test_two_commands_do_everything_on_a_fresh_machine(tmp_path: Path) -> None:
    """One installs and runs the demo, the other runs the tests; here at the smoke scale, and of one file."""
    demo, tests = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    for command in (f"{demo} --scale smoke", f"{tests} tests/test_imports.py"):
        subprocess.run(["bash", "-c", command], check=True, cwd=tmp_path / "clone")
    assert list((tmp_path / "clone" / "runs").glob("studies/*/report.html"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_variant_is_named(folder: str) -> None:
    assert set(variants(f"zoo.{folder}")) <= named()


def test_nothing_is_named_that_there_is_not() -> None:
    every = {name for folder in FOLDERS for name in variants(f"zoo.{folder}")}
    settings = {*ModelSpec.model_fields, *BlockSpec.model_fields}
    assert named() <= every | settings | set(presets.names())
