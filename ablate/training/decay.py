"""Weight decay by parameter role."""

from __future__ import annotations

import math
from typing import Any

from pydantic import GetJsonSchemaHandler, NonNegativeFloat, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from zoo.settings.axis import Spec

MATRICES = ("embedding", "input", "output", "head")


class WeightDecay(Spec):
    """λ per role; a number applies to the four kinds of matrices, with 0 for gains and biases.

    A map must name all four, so that no λ of a matrix is implicit. A tied table counts as an embedding.
    """

    embedding: NonNegativeFloat
    """λ of the token table, a tied one included, and of other tables."""
    input: NonNegativeFloat
    """λ of matrices that read the residual stream, such as W_q and W_up."""
    output: NonNegativeFloat
    """λ of matrices that write to the residual stream, such as W_o and W_down."""
    head: NonNegativeFloat
    """λ of the matrix of the head, if it is not tied to the token table."""
    gain: NonNegativeFloat = 0.0
    """λ of gains of norms and other multipliers."""
    bias: NonNegativeFloat = 0.0
    """λ of biases and other offsets."""

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, WeightDecay):
            return value
        if isinstance(value, dict):
            missing = [role for role in MATRICES if role not in value]
            if missing and value.keys() <= cls.model_fields.keys():
                raise ValueError(f"needs each of {', '.join(MATRICES)}; missing: {', '.join(missing)}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ValueError(f"must be a number of at least 0, or a map by parameter role, not {value!r}")
        return dict.fromkeys(MATRICES, value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "number", "minimum": 0}, super().__get_pydantic_json_schema__(schema, handler)]}
