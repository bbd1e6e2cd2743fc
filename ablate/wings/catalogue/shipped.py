"""The catalogue from a file that ships, so that listing what can be named loads no torch and builds no model."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.settings.registry import plugins

if TYPE_CHECKING:
    from ablate.wings.catalogue.catalogue import WholeCatalogue

KIND = re.compile(r'^    kind: Literal\["(\w+)"\]', re.MULTILINE)
"""Declaration of a variant's name."""


def catalogue() -> WholeCatalogue:
    """The file that ships; made afresh if there are plug-ins, or variants or presets that it does not have."""
    shipped = resources.files("ablate.wings.catalogue").joinpath("catalogue.json")
    found: WholeCatalogue = json.loads(shipped.read_text(encoding="utf-8"))
    known = {axis: {each["name"] for each in entries} for axis, entries in found["variants"].items()}
    presets = {path.stem for path in Path(str(resources.files("zoo").joinpath("presets"))).glob("*.yaml")}
    is_whole = presets == {each["name"] for each in found["presets"]}
    if not plugins() and is_whole and all(_has_all_of(names, axis) for axis, names in known.items()):
        return found
    from ablate.wings.catalogue.catalogue import whole_catalogue  # noqa: PLC0415 (loads torch)

    return whole_catalogue()


def _has_all_of(names: set[str], axis: str) -> bool:
    """Whether these are the names of all variants that lie in the folders of an axis of the zoo; nothing is imported.

    A file is named after its variant, or has small siblings, whose names are then read in its text.
    """
    package = sys.modules.get(f"zoo.{axis}")
    folders = package.__path__ if package else [str(resources.files("zoo").joinpath(*axis.split(".")))]
    files = [path for each in folders for path in Path(each).glob("[!_]*.py") if path.stem not in names]
    kinds = [set(KIND.findall(path.read_text(encoding="utf-8"))) for path in files]
    return all(found and found <= names for found in kinds)
