"""NTK-aware scaling that grows with the text's length."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests


class Dynamic(Scaling):
    """θ'_i = (base · s^(d/(d−2)))^(−2i/d), s = factor·n/L − (factor − 1) for a text of n > L tokens, 1 up to L.

    L is `original_length`. bloc97 and emozilla 2023; Peng et al. 2023, arXiv:2309.00071, appendix B.2.

    Frequencies depend on the length, and cached keys keep the rotation of the length at which they were written. Past L
    tokens cached decoding thus differs from the uncached forward pass; each matches its counterpart in transformers.
    """

    # Longer than any tested text: past it, cached decoding differs from the uncached forward pass.
    examples: ClassVar[Examples] = ({"factor": 4.0, "original_length": 32},)
    kind: Literal["dynamic"] = "dynamic"
    supports: ClassVar[Operations] = EVERY_OPERATION
    factor: PositiveFloat
    """Growth of s with the length: s = factor + 1 at n = 2L tokens."""
    original_length: Annotated[PositiveInt, MaxInTests(64)]
    """L: text length in tokens up to which frequencies are unscaled."""

    def check(self, dim: int, base: float) -> None:
        if dim <= 2:
            raise SpecError("", f"NTK-aware scaling needs more than one pair of features, not {dim} features")

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        stretch = self.factor * length.clamp(min=self.original_length) / self.original_length - (self.factor - 1)
        return rotation(base * stretch ** (dim / (dim - 2)), dim, length.device)
