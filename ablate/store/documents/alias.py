"""`aliases.ndjson`: what is stored under a digest of an earlier version. Lines are only added."""

from __future__ import annotations

from ablate.store.documents._document import Part


class AliasRecord(Part):
    """Two digests of one thing."""

    digest: str
    """Its digest in this version."""
    stored: str
    """The digest that folders, files and documents of the store name it by."""
