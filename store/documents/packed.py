"""`manifest.json` of an archive with a part of a store, and `merged.ndjson`: the runs that came from archives."""

from __future__ import annotations

from store.documents._document import Bytes, Document, Part, Time


class PackedFile(Part):
    """A file of an archive."""

    bytes: Bytes
    """Its size, uncompressed."""
    sha256: str
    """Checksum of its content."""


class PackDocument(Document):
    """`manifest.json`: the contents of an archive."""

    ablate: str
    """Version of this project that wrote it."""
    studies: tuple[str, ...]
    """Names of the study folders."""
    runs: tuple[str, ...]
    """Digests of the runs."""
    weights: bool
    """Whether it has the trained models."""
    files: dict[str, PackedFile]
    """All other files, by their path within the store."""


class MergedRecord(Part):
    """A run that was trained in another store and came from an archive. Append-only."""

    at: Time
    """Time of the merge (ISO 8601)."""
    archive: str
    """SHA-256 of the archive."""
    run: str
    """Digest of the run."""
    finished: Time
    """End of its training, from its result; differs if the same run is trained again here."""
    weights: bool
    """Whether the archive had its model."""
