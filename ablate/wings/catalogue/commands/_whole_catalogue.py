"""The whole catalogue of the zoo, from a file that ships, so that listing it loads no torch."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.commands import DONE, print_json, print_line
from zoo.settings.registry import plugins

if TYPE_CHECKING:
    from ablate.wings.catalogue.catalogue import WholeCatalogue

FIRST = ("mixers", "ffns", "norms", "residuals", "positions", "positions.scalings", "sparsities", "parts")
"""Axes that are listed first: the parts of a model."""
KIND = re.compile(r'^    kind: Literal\["(\w+)"\]', re.MULTILINE)
"""Declaration of a variant's name."""


def show_all(as_json: bool) -> int:
    found = _catalogue()
    if as_json:
        print_json(found)
        return DONE
    variants = found["variants"]
    for axis in sorted(variants, key=lambda axis: FIRST.index(axis) if axis in FIRST else len(FIRST)):
        print(axis)
        width = max(len(each["name"]) for each in variants[axis])
        for each in variants[axis]:
            plugin = f"(plug-in {each['plugin']}) " if "plugin" in each else ""
            print_line(f"  {each['name']:{width}}  {plugin}{each['doc']}")
        print()
    print(f"`ablate zoo presets` lists {len(found['presets'])} published models.")
    print("`ablate zoo NAME` shows a variant or a preset in full; for `model`, `block`,")
    print("`train`, `lora`, `start` or `teacher` its settings; for a setting the parts that")
    print("have it; for a name of zoo.building_blocks its signature and documentation.")
    return DONE


def _catalogue() -> WholeCatalogue:
    """The file that ships; made afresh if there are plug-ins, or variants that it does not have."""
    shipped = resources.files("ablate.wings.catalogue").joinpath("catalogue.json")
    found: WholeCatalogue = json.loads(shipped.read_text(encoding="utf-8"))
    known = {axis: {each["name"] for each in entries} for axis, entries in found["variants"].items()}
    if not plugins() and all(_has_all_of(names, axis) for axis, names in known.items()):
        return found
    from ablate.wings.catalogue.catalogue import whole_catalogue

    return whole_catalogue()


def _has_all_of(names: set[str], axis: str) -> bool:
    """Whether these are the names of all variants that lie in the folder of an axis of the zoo; nothing is imported.

    A file is named after its variant, or has small siblings, whose names are then read in its text.
    """
    package = sys.modules.get(f"zoo.{axis}")
    folder = Path(package.__path__[0]) if package else Path(str(resources.files("zoo").joinpath(*axis.split("."))))
    files = [path for path in folder.glob("*.py") if not path.name.startswith("_") and path.stem not in names]
    kinds = [set(KIND.findall(path.read_text(encoding="utf-8"))) for path in files]
    return all(found and found <= names for found in kinds)
