"""NTK-aware scaling."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples


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
