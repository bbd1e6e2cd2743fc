"""`aliases.ndjson`: digests of earlier versions that the store still uses. Append-only."""

from __future__ import annotations

from store.documents._document import Part


class AliasRecord(Part):
    """The two digests of a run or a request."""

    digest: str
    """Its digest in this version."""
    stored: str
    """Its digest in the folders, files and documents of the store."""
