"""Extrapolatable position embedding."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.positions import PositionLayer
from zoo.positions._rotary import Rotary, RotaryLayer
from zoo.settings.axis import Examples
from zoo.site import ForwardPass


class XPos(Rotary):
    """RoPE with pair i of a query at n multiplied by ζ_i^(n/S) and of a key at m by ζ_i^(−m/S), so that scores decay
    with distance as ζ_i^((n−m)/S), ζ_i = (2i/d + γ)/(1 + γ). Sun et al. 2022, arXiv:2212.10554.

    S is `scale_base`. The factors fit into float32 up to positions of about 70·S.
    """

    examples: ClassVar[Examples] = ({"scale_base": 30.0},)
    kind: Literal["xpos"] = "xpos"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    gamma: Annotated[float, Field(gt=0)] = 0.4
    """γ: a larger value makes the pairs' scores decay more slowly and more uniformly."""
    scale_base: PositiveFloat = 512.0
    """S: distance in tokens over which the scores of pair i decay by the factor ζ_i."""

    def check_ahead(self) -> None:
        raise SpecError("", "xpos needs causal attention: scores would grow with the distance to later tokens")

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return XPosLayer(self, head_dim)


class XPosLayer(RotaryLayer):
    """x: (B, H, T, d) → (B, H, T, d)."""

    rotates_alike: ClassVar[bool] = False
    spec: XPos

    def rotate_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        return self._turn(q, step, +1)

    def rotate_keys(self, k: Tensor, step: ForwardPass) -> Tensor:
        return self._turn(k, step, -1)

    def amplitude(self, places: Tensor, sign: int) -> Tensor:
        pairs = torch.arange(0, self.dim, 2, dtype=torch.float32, device=places.device) / self.dim
        zeta = (pairs + self.spec.gamma) / (1 + self.spec.gamma)
        return self.spec.magnitude * zeta ** (sign * places / self.spec.scale_base)
