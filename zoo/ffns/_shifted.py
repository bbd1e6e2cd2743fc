"""Base of feed-forward layers with a token shift."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import PositiveInt

from zoo.ffns import Ffn
from zoo.ffns._dense import Width, features
from zoo.settings.axis import number
from zoo.settings.field_tags import Fact


class TokenShifted(Ffn):
    """Base of layers whose hidden features also read the previous token."""

    d_ff: Annotated[Width, Fact.SIZE, Fact.WIDTH] = "4x"
    """Hidden features: a number, or a ratio to d_model."""
    multiple_of: Annotated[PositiveInt, Fact.SIZE] = 8
    """A ratio is rounded to the nearest multiple of this."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update={"d_ff": features(self.d_ff, d_model, self.multiple_of), "multiple_of": 1})

    @property
    def width(self) -> int:
        """F: hidden features of a resolved spec."""
        return number(self.d_ff if isinstance(self.d_ff, int) else None)

    @property
    def reaches_back(self) -> bool:
        return True

    def cache_elements(self, d_model: int) -> int:
        return d_model
