"""Places where wings and their like add to the floors below them.

A floor that can be added to asks for the modules of a place, which is its own name: it does not know who adds them, and
works if nobody does. Names are only imported when a place is asked, so adding is cheap.
"""

from __future__ import annotations

import importlib
from types import ModuleType

_added: dict[str, list[str]] = {}


def extend(place: str, module: str) -> None:
    """Add a module to a place."""
    if module not in _added.setdefault(place, []):
        _added[place].append(module)


def added_to(place: str) -> list[ModuleType]:
    """The modules that were added to a place, in the order of their names."""
    return [importlib.import_module(name) for name in sorted(_added.get(place, ()))]
