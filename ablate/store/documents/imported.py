"""`imports/<name>.json`: a model that was trained elsewhere, and the run that was made of it."""

from __future__ import annotations

from pydantic import Field

from ablate.store.documents._document import Document, is_none


class ImportDocument(Document):
    """An imported model. Its scores are the evaluations of its run."""

    name: str
    """Name that reports show, and that commands take in place of a digest."""
    folder: str
    """Where it lay when it was imported."""
    run: str
    """Digest of its run: of the model, the text and the context that its loss is of."""
    measure: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the measurement request; absent where nothing was measured."""
    created: str
    """When it was imported (ISO 8601)."""
