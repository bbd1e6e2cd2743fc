"""`manifest.json` of an archive that carries a part of a store, and `merged.ndjson`: the runs that came in archives."""

from __future__ import annotations

from ablate.store.documents._document import Bytes, Document, Part


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
    """Whether the trained models are in it."""
    files: dict[str, PackedFile]
    """All other files, by their place in the store."""


class MergedRecord(Part):
    """A run that was trained in another store, and came in an archive. Lines are only ever added."""

    at: str
    """Time of the merge (ISO 8601)."""
    archive: str
    """SHA-256 of the archive."""
    run: str
    """Digest of the run."""
    finished: str
    """End of its training, by its result: the same run trained here has another."""
    weights: bool
    """Whether its model came with it."""
