"""Places where wings and their like add to the floors below them.

A floor that can be added to asks for modules by the name of a place, its own: it does not know who adds them, and works
if nobody does. Nothing that is added is imported here, so adding is cheap.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

DECLARATIONS = "ablate.wings"
"""Module that adds whatever ships when it is imported."""
_added: dict[str, list[str]] = {}


def extend(place: str, module: str) -> None:
    """Add a module, or a package, to a place."""
    if module not in _added.setdefault(place, []):
        _added[place].append(module)


def added_to(place: str) -> tuple[str, ...]:
    """Names of what was added to a place, in alphabetical order, whatever was imported before."""
    importlib.import_module(DECLARATIONS)
    return tuple(sorted(_added.get(place, ())))


def modules_of(place: str) -> list[ModuleType]:
    """Imported modules that were added to a place."""
    return list(map(importlib.import_module, added_to(place)))


def module_of(place: str) -> Any:
    """The imported module that was added to a place which takes one; None if none was."""
    return next(map(importlib.import_module, added_to(place)), None)
