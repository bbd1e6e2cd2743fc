"""The ground floor: every path, every document and every write of a store. Imports nothing else of ours."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.store.errors import AblateError
    from ablate.store.files import StoreError
    from ablate.store.store import SCHEMA, Document, LockedError, Store, read_json

# Lazy, so that the command line starts without pydantic.
_HOME = {
    "AblateError": "ablate.store.errors",
    "Document": "ablate.store.store",
    "LockedError": "ablate.store.store",
    "SCHEMA": "ablate.store.store",
    "Store": "ablate.store.store",
    "StoreError": "ablate.store.files",
    "read_json": "ablate.store.store",
}

__all__ = ["SCHEMA", "AblateError", "Document", "LockedError", "Store", "StoreError", "read_json"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ablate.store' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
