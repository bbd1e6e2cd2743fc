"""The ground floor: every path, every document and every write of a store. Imports nothing else of ours."""

from ablate.store.files import StoreError
from ablate.store.store import SCHEMA, Document, LockedError, Store, read_json

__all__ = ["SCHEMA", "Document", "LockedError", "Store", "StoreError", "read_json"]
