"""Attention with linear biases."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import BY_TOKEN, EVERY_OPERATION, Operation, Operations
from zoo.errors import SpecError
from zoo.kernels.compiling import on_device
from zoo.positions import BiasLayer, Position, PositionLayer
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Supports
from zoo.site import ForwardPass


class ALiBi(Position):
    """score(i, j) −= m_h·|i − j|, slopes m_h = 2^(−8h/n) for h = 1…n. Press et al. 2021, arXiv:2108.12409.

    For H heads, n is the largest power of two up to H; the other H − n heads take intermediate slopes, 2^(−8(h − ½)/n).
    Softmax ignores a constant shift of a row's scores, so m_h·j (BLOOM, MPT) is the same scheme.
    """

    examples: ClassVar[Examples] = ({}, {"rounded": True, "scaled": True})
    kind: Literal["alibi"] = "alibi"
    supports: ClassVar[Operations] = BY_TOKEN | {Operation.WIDTH_TRANSFER}
    adds_to_scores: ClassVar[bool] = True
    takes_places: ClassVar[bool] = False
    max_exponent: PositiveFloat = 8.0
    """Exponent of the smallest slope, 2^(−max_exponent) (MPT's alibi_bias_max)."""
    scaled: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether slopes are divided by √d, like scores (Falcon)."""
    rounded: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether the bias is m_h·j, computed in bfloat16 whatever the model's dtype (Falcon)."""
    factor: PositiveFloat = 1.0
    """Factor on every slope."""

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return ALiBiLayer(self, head_dim, heads)

    def check_ahead(self) -> None:
        if self.rounded:
            raise SpecError("rounded", "needs causal attention: m·j is a distance to earlier tokens only")

    def slopes(self, heads: int) -> list[float]:
        """Slopes m_h, one per head."""
        power = 2 ** int(math.log2(heads))
        between = range(heads - power)
        exponents = [*(h + 1 for h in range(power)), *(h + 0.5 for h in between)]
        return [2 ** (-self.max_exponent * e / power) for e in exponents]


class ALiBiLayer(BiasLayer[ALiBi]):
    """A constant bias, which the fused attention backend supports."""

    def compute(self, step: ForwardPass, places: Tensor) -> Tensor:
        slopes = on_device(self.spec.slopes(self.heads), places.device)[:, None, None]
        if self.spec.rounded:  # by positions in the row's own text, 0 on padding: (S,), or (B, 1, 1, S)
            own = places if step.left_pad is None else places - step.left_pad[:, None, None, None]
            bias = (slopes.bfloat16() * own.clamp(min=0)).float()
        else:
            bias = -slopes * (step.index[:, None] - places).abs()
        return bias * (self.spec.factor * (self.head_dim**-0.5 if self.spec.scaled else 1.0))
