"""Scaled cosine attention."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.mixers import MixerLayer
from zoo.mixers._multi_head import MultiHead
from zoo.mixers.attention import AttentionLayer
from zoo.site import LayerSite


class Cosine(MultiHead):
    """score = cos(q, k) / τ, with a learned τ per head, at least 1/`max_scale`. Swin v2, arXiv:2111.09883 §3.2.

    As there, 1/τ = exp(min(s, log max_scale)) with learned s: (H,), initially `initial_scale`. Henry et al. 2020
    (QK-norm, arXiv:2010.04245) have one unbounded g = 1/τ per layer. Queries and keys are normalised before positions,
    which leave their norms unchanged if they are rotary.
    """

    kind: Literal["cosine"] = "cosine"
    supports: ClassVar[Operations] = BY_TOKEN
    initial_scale: PositiveFloat = 10.0
    """Initial value of 1/τ, the factor on cosines; at most `max_scale`."""
    max_scale: PositiveFloat = 100.0
    """Upper bound on 1/τ."""

    def resolve(self, d_model: int) -> Self:
        if self.qk_norm is not None:
            raise SpecError("qk_norm", "cosine attention already normalises queries and keys")
        if self.scale not in (None, self.position.score_factor):  # a resolved spec has the latter
            raise SpecError("scale", "cosine attention learns its scale: set initial_scale")
        if self.initial_scale > self.max_scale:
            raise SpecError(
                "initial_scale", f"must be at most max_scale ({self.max_scale:g}), not {self.initial_scale:g}"
            )
        return super().resolve(d_model).model_copy(update={"scale": self.position.score_factor})

    def build(self, site: LayerSite) -> MixerLayer:
        return CosineLayer(self, site.d_model)

    def _norm_parameters(self) -> int:
        return self.heads


class CosineLayer(AttentionLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Cosine, d_model: int) -> None:
        super().__init__(spec, d_model)
        self._full_norm = self._places_alike = False
        self.q_norm = ScaledUnit(self.heads, spec.initial_scale, spec.max_scale)
        self.k_norm = UnitNorm()


class UnitNorm(nn.Module):
    """x / ‖x‖ over the last dimension, computed in float32 for every input type."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x.float(), dim=-1).to(x.dtype)


class ScaledUnit(nn.Module):
    """x: (B, H, T, d) → x / ‖x‖ / τ_h."""

    roles: ClassVar = {"log_scale": "gain"}

    def __init__(self, heads: int, initial: float, maximum: float) -> None:
        super().__init__()
        self.unit = UnitNorm()
        self.max_log_scale = math.log(maximum)
        self.initial = {"log_scale": math.log(initial)}
        self.log_scale = nn.Parameter(torch.zeros(heads))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.log_scale.clamp(max=self.max_log_scale).exp()
        out: Tensor = self.unit(x) * scale[:, None, None].to(x.dtype)
        return out
