"""Which of the projections have biases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

NAMES = ("q", "k", "v", "o")
GATE = "gate"
"""Bias of the output gate, which only a list can name."""


def _check(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return NAMES if value else ()
    if isinstance(value, list | tuple) and all(name in (*NAMES, GATE) for name in value):
        return tuple(name for name in (*NAMES, GATE) if name in value)
    raise ValueError("must be true, false or a list of projections among q, k, v, o and gate")


Biases = Annotated[
    tuple[str, ...],
    Field(strict=False),
    BeforeValidator(_check),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"enum": [*NAMES, GATE]}}]}),
]
