"""Guides under docs/ that tell their reader to write files: the files are written, and a program uses them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def files_of(guide: str) -> dict[str, str]:
    """Files that the guide tells its reader to write, by path: those that it shows, and those of `examples` that it
    links to."""
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    found = dict(re.findall(r"`([\w/.]+)`:\n\n```(?:python|yaml)\n(.*?)```", text, re.DOTALL))
    linked = re.findall(r"`([\w/.]+)` as in\s\[[\w.]+\]\(\.\./(examples/[\w/.]+)\)", text)
    found |= {path: (ROOT / example).read_text(encoding="utf-8") for path, example in linked}
    assert found, f"{guide} has no file to write"
    return found


def followed(guide: str, folder: Path, program: str) -> Any:
    """Output, parsed as JSON, of a program that runs where the guide's files lie in their packages, and its other files
    in `folder`, which is the working directory of the program's commands."""
    packages = []
    for path, text in files_of(guide).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        if path.endswith(".py") and Path(path).parent.parts:
            packages.append((str(place.parent), ".".join(Path(path).parent.parts)))
    dropped = f"import importlib, json, os, sys\nsys.path.insert(0, {str(ROOT)!r})\n" + "".join(
        f"importlib.import_module({package!r}).__path__.append({place!r})\n" for place, package in packages
    )
    run = subprocess.run(
        [sys.executable, "-c", dropped + program], capture_output=True, text=True, cwd=folder, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
