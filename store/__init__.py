"""The lowest layer: every path, document and write of a store. Imports nothing else of this project."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store.claims import LockedError, LostClaimError
    from store.errors import AblateError
    from store.files import StoreError, replacing, write_text
    from store.folders import DataFolder, StudyFolder
    from store.paths import tokenizer_in
    from store.store import Store

# Lazy, so that the command line starts without pydantic.
_HOME = {
    "AblateError": "store.errors",
    "DataFolder": "store.folders",
    "LockedError": "store.claims",
    "LostClaimError": "store.claims",
    "Store": "store.store",
    "StoreError": "store.files",
    "StudyFolder": "store.folders",
    "replacing": "store.files",
    "tokenizer_in": "store.paths",
    "write_text": "store.files",
}


DEFAULT_STORE = "runs"
"""Default store folder of commands."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'store' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
