"""What all stored documents have in common."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

JsonScalar: TypeAlias = str | int | float | bool | None
JsonObject: TypeAlias = dict[str, JsonValue]


class Part(BaseModel):
    """A frozen part of a document: unknown fields, wrong types, NaN and infinities are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Document(Part):
    """A file of the store. The version of its schema is `schema` in JSON."""

    version: Literal[1] = Field(default=1, alias="schema")
    """Version of the document's schema."""
