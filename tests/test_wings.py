"""Every wing can be deleted as a folder: what is left plans, trains, judges and shows a study."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ablate import wings
from ablate.commands import FOLDED, OF_THE_CORE
from ablate.study.sections import OwnSections

ROOT = Path(__file__).parent.parent
PACKAGES = ("zoo", "store", "evals", "reports", "ablate", "studies")
WINGS = [*(name.replace(".", "/") for name in wings.wings()), "evals/harness", "zoo/conformance", "zoo/conversion"]
BY_FOLDER = {ROOT / name.replace(".", "/"): wing for name, wing in wings.wings().items()}


def without(gone: Sequence[str], place: Path) -> Path:
    """The packages without these wings: folders above one that is gone, and links to all else, so that what is compiled
    is shared."""
    absent = {ROOT / name for name in gone}
    above = {parent for path in absent for parent in path.parents if ROOT in parent.parents}

    def fill(folder: Path, copy: Path) -> None:
        copy.mkdir()
        for entry in set(folder.iterdir()) - absent:
            if entry in above:
                fill(entry, copy / entry.name)
            else:
                (copy / entry.name).symlink_to(entry)

    for package in PACKAGES:
        if ROOT / package in above:
            fill(ROOT / package, place / package)
        else:
            (place / package).symlink_to(ROOT / package)
    return place


def plain(place: Path) -> list[str]:
    """The study of norm placement without the keys that wings add, in a file, at its smallest scale."""
    written = YAML(typ="safe").load((ROOT / "studies" / "norm_placement.yaml").read_text(encoding="utf-8"))

    def kept(edits: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in edits.items() if key.partition(".")[0] in OwnSections.model_fields}

    own = {**kept(written), "scales": {name: kept(edits) for name, edits in written["scales"].items()}}
    assert written["claims"] and len(own) < len(written)
    (place / "plain.yaml").write_text(json.dumps(own), encoding="utf-8")
    return ["plain.yaml", "--scale", "smoke", "--set", "seeds=1"]


def built_on(name: str) -> set[str]:
    """A wing and those that build on it, directly or not, by folder."""
    found = {name}
    while (
        more := {str(own.relative_to(ROOT)) for own, wing in BY_FOLDER.items() if found.intersection(wing.needs)}
        - found
    ):
        found |= more
    return found


def may_import(path: Path) -> list[str]:
    """Wings that a file is of, or that its wing builds on."""
    needs = [need for own, wing in BY_FOLDER.items() if own in path.parents for need in wing.needs]
    return [*needs, *(name for name in WINGS if ROOT / name in path.parents)]


def ablate(place: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ablate", *words],
        capture_output=True, text=True, check=False, cwd=place, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", WINGS)
def test_a_wing_that_is_deleted_takes_its_commands_and_nothing_else(name: str, tmp_path: Path) -> None:
    place = without([name], tmp_path)
    own = [wing for folder, wing in BY_FOLDER.items() if str(folder.relative_to(ROOT)) in built_on(name)]
    listed = {line.split()[0] for line in ablate(place, "--help").splitlines() if line.startswith("    ")}
    assert not {command for wing in own for command in wing.commands} & listed
    assert set(OF_THE_CORE) - set(FOLDED) <= listed


@pytest.mark.slow
@pytest.mark.parametrize("name", WINGS)
def test_without_any_one_wing_a_study_is_planned(name: str, tmp_path: Path) -> None:
    """By default this is tried without all of them (below), and no wing imports one that it does not build on."""
    assert "parameters" in ablate(without([name], tmp_path), "plan", *plain(tmp_path))


@pytest.mark.processes
def test_the_core_alone_runs_a_study(tmp_path: Path) -> None:
    place = without(WINGS, tmp_path)
    found = json.loads(ablate(place, "run", *plain(place), "--engine", "inprocess", "--json"))
    assert found["trained"] > 0 and found["failed"] == 0
    assert (place / found["report"]).is_file()
    assert {arm["name"] for arm in found["arms"]} >= {"pre", "post", "double"}


def test_nothing_imports_a_wing_but_itself() -> None:
    """Except for the faces: `ablate/__init__.py` names, for types, what each wing adds to it, and `zoo/__init__.py` the
    homes of its own names."""
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        for name in WINGS
        if name.replace("/", ".") in line and name not in may_import(path)
    ]
    assert all(each.startswith(("ablate/__init__.py:     from ", "zoo/__init__.py: ")) for each in found), found
