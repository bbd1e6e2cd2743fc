"""Hidden widths: a number, or a ratio to d_model such as `4x` or `8/3x`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

RATIO = re.compile(r"(\d+(?:\.\d+)?)(?:/(\d+))?x")


def _check(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := RATIO.fullmatch(value)) and Fraction(match[1]) and match[2] not in ("0",):
        return value
    raise ValueError("must be a positive whole number or a ratio to d_model such as 4x or 8/3x")


Width = Annotated[
    int | str,
    PlainValidator(_check),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": f"^{RATIO.pattern}$"},
            ]
        }
    ),
]


def features(width: int | str, d_model: int, multiple_of: int) -> int:
    """A width as a number. Ratios are rounded to the nearest multiple of `multiple_of` (halves up); numbers are
    kept."""
    if isinstance(width, int):
        return width
    match = RATIO.fullmatch(width)
    if match is None:
        raise ValueError(f"not a ratio: {width}")
    exact = Fraction(match[1]) / int(match[2] or 1) * d_model
    return max(1, int(exact / multiple_of + Fraction(1, 2))) * multiple_of
