"""Sentences and tables."""

from __future__ import annotations

import importlib
from types import ModuleType

from store.extensions import added_to


def effect_words() -> ModuleType:
    """Words on effects, of the wing that judges them: `headline`, `method`, `sentence`, `closing_table`, `table`."""
    [name] = added_to(__name__)
    return importlib.import_module(name)
