"""`sums.json` and `checked-<machine>.json`: checksums of the files of a corpus or a model, and the files verified by
them."""

from __future__ import annotations

from typing import Annotated

from store.documents._document import Bytes, Document, Part, Unit


class SumsDocument(Document):
    """`sums.json`: checksums of the other files of its folder, when they were written."""

    sha256: dict[str, str]
    """SHA-256 by the name of the file."""


class FileStamp(Part):
    """Metadata that shows, without reading a file, whether it has changed."""

    bytes: Bytes
    """Its size."""
    modified: Annotated[int, Unit("ns since 1970")]
    """Time of its last change (`st_ctime`), which no program can set."""


class CheckedDocument(Document):
    """`checked-<machine>.json`: the files that were verified on one machine. A file is read again once its stamp has
    changed."""

    files: dict[str, FileStamp]
    """Stamps by the name of the file."""
