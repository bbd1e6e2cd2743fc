"""Stored documents: one typed model for each. Nothing here reads or writes; `ablate.store.Store` does."""

from ablate.store.documents._document import Document, JsonObject, JsonScalar, Part
from ablate.store.documents.evals import EvalsDocument, Score, Section, TaskGroup
from ablate.store.documents.sample import SampleRecord

__all__ = [
    "Document",
    "EvalsDocument",
    "JsonObject",
    "JsonScalar",
    "Part",
    "SampleRecord",
    "Score",
    "Section",
    "TaskGroup",
]
