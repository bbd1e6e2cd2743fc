"""`imports/<name>.json`: a model that was trained elsewhere, and the run that represents it."""

from __future__ import annotations

from pydantic import Field

from store.documents._document import Document, Time, is_none


class ImportDocument(Document):
    """An imported model. Its scores are the evaluations of its run."""

    name: str
    """Name that reports show, and that commands accept in place of a digest."""
    folder: str
    """Its folder at the time of the import."""
    run: str
    """Digest of its run: the model, and the text and context of its loss."""
    measure: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the measurement request; absent if nothing was measured."""
    created: Time
    """Time of the import (ISO 8601)."""
