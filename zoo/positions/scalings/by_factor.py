"""Scalings by a factor: of all frequencies, of some, of the base (NTK-aware), of a base that grows with the text."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, OF_MODULES, OF_VALUES, Operations
from zoo.errors import SpecError
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests


class Linear(Scaling):
    """θ'_i = θ_i / factor: position interpolation. Chen et al. 2023, arXiv:2306.15595."""

    examples: ClassVar[Examples] = ({"factor": 4.0},)
    kind: Literal["linear"] = "linear"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    factor: PositiveFloat
    """Divisor of positions: new length / original length."""

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        return rotation(base, dim, length.device) / self.factor


class NTK(Scaling):
    """θ'_i = (base · factor^(d/(d−2)))^(−2i/d): the highest frequency is unchanged, the lowest divided by `factor`.

    bloc97 2023; Peng et al. 2023, arXiv:2309.00071, §3.1.
    """

    examples: ClassVar[Examples] = ({"factor": 4.0},)
    kind: Literal["ntk"] = "ntk"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    factor: PositiveFloat
    """Divisor of the lowest frequency: new length / original length."""

    def check(self, dim: int, base: float) -> None:
        if dim <= 2:
            raise SpecError("", f"NTK-aware scaling needs more than one pair of features, not {dim} features")

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        return rotation(base * self.factor ** (dim / (dim - 2)), dim, length.device)


class Dynamic(Scaling):
    """θ'_i = (base · s^(d/(d−2)))^(−2i/d), s = factor·n/L − (factor − 1) for a text of n > L tokens, 1 up to L.

    L is `original_length`. bloc97 and emozilla 2023; Peng et al. 2023, arXiv:2309.00071, appendix B.2.

    Frequencies depend on the length, and cached keys keep the rotation of the length at which they were written. Past L
    tokens cached decoding thus differs from the uncached forward pass; each matches its counterpart in transformers.
    """

    # Longer than any tested text: past it, cached decoding differs from the uncached forward pass.
    examples: ClassVar[Examples] = ({"factor": 4.0, "original_length": 32},)
    kind: Literal["dynamic"] = "dynamic"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
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


class Proportional(Scaling):
    """θ'_i = θ_i / factor for the first ⌊proportion·d/2⌋ pairs, 0 for the others, which then carry no position.

    Unlike with a `fraction` of the head, θ and the pairing of features are those of the whole head. Gemma 4 (2026), as
    in transformers.
    """

    kind: Literal["proportional"] = "proportional"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    proportion: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the pairs, the first ones, that are rotated."""
    factor: PositiveFloat = 1.0
    """Divisor of the rotated pairs' frequencies."""

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        whole = rotation(base, dim, length.device)
        turning = torch.arange(len(whole), device=length.device) < int(self.proportion * dim // 2)
        return torch.where(turning, whole / self.factor, 0.0)
