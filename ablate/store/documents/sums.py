"""`sums.json` and `checked-<machine>.json`: what the files of a prepared corpus or a trained model contain, and what
was compared."""

from __future__ import annotations

from typing import Annotated

from ablate.store.documents._document import Bytes, Document, Part, Unit


class SumsDocument(Document):
    """`sums.json`: the contents of the other files of its folder, when they were written."""

    sha256: dict[str, str]
    """SHA-256 by the name of the file."""


class FileStamp(Part):
    """Metadata of a file, known without reading it."""

    bytes: Bytes
    """Its size."""
    modified: Annotated[int, Unit("ns since 1970")]
    """When it last changed, which nobody can set (`st_ctime`)."""


class CheckedDocument(Document):
    """`checked-<machine>.json`: the files that were compared with their sums on one machine. They are read again when
    their stamps have changed."""

    files: dict[str, FileStamp]
    """Stamps by the name of the file."""


class WholeDocument(Document):
    """`checked-<machine>.json` of a store: the folders that `ablate check` found whole on one machine.
    `ablate check --quick` reads the others."""

    folders: dict[str, str]
    """Stamps by the folder's place in the store: a hash of the names, modes, inodes, sizes and times of its files."""
