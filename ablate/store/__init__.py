"""The lowest layer: every path, document and write of a store. Imports only `ablate.errors` of this project."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.errors import AblateError
    from ablate.store.claims import LockedError, LostClaimError
    from ablate.store.files import StoreError, replacing, write_text
    from ablate.store.folders import DataFolder, SearchFolder, StudyFolder
    from ablate.store.paths import tokenizer_in
    from ablate.store.store import Store

# Lazy, so that the command line starts without pydantic.
_HOME = {
    "AblateError": "ablate.errors",
    "DataFolder": "ablate.store.folders",
    "LockedError": "ablate.store.claims",
    "LostClaimError": "ablate.store.claims",
    "SearchFolder": "ablate.store.folders",
    "Store": "ablate.store.store",
    "StoreError": "ablate.store.files",
    "StudyFolder": "ablate.store.folders",
    "replacing": "ablate.store.files",
    "tokenizer_in": "ablate.store.paths",
    "write_text": "ablate.store.files",
}

__all__ = [
    "AblateError",
    "DataFolder",
    "LockedError",
    "LostClaimError",
    "SearchFolder",
    "Store",
    "StoreError",
    "StudyFolder",
    "replacing",
    "tokenizer_in",
    "write_text",
]


DEFAULT_STORE = "runs"
"""Default store folder of commands."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ablate.store' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
