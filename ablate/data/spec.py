"""`DataSpec`, the type of a study's `data`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import TypeAdapter

from ablate.data.sources import DataSource
from zoo.settings.axis import Choice

DataSpec: TypeAlias = Annotated[DataSource, Choice("ablate.data.sources", tag="source")]
"""A map with `source`, or the bare name of a source (`data: stdlib`)."""


def parse(value: object) -> DataSource:
    """Parse a data spec from plain values.

    Raises:
        pydantic.ValidationError: names the path of every mistake.
    """
    adapter: TypeAdapter[DataSource] = TypeAdapter(DataSpec)
    return adapter.validate_python(value)
