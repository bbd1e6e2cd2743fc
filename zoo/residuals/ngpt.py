"""Residual of the normalised Transformer: steps on the unit sphere."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import Examples, is_off
from zoo.settings.field_tags import ValuesInTests
from zoo.site import LayerSite, PartCost


class NGPT(Residual):
    """y = N(x + α ⊙ (N(f(x)) − x)), N(x) = x / ‖x‖, α: (D,) learned. Loshchilov et al. 2024 (nGPT), arXiv:2410.01131.

    Each token's stream is a unit vector from the embedding on; a branch moves it by a share α towards its own output. α
    starts at `rate`. The parameter stores α / (rate·√D), as in the paper, so that one learning rate suits it and the
    matrices. The rest of nGPT: the model's `unit_weights` and `logit_gain`, `ffn: scaled_swiglu`, and in attention
    `qk_norm` after positions with `scale` 1/√d, which for features of mean square 1 equals the paper's √d on unit
    vectors; the gains of the query and key norms multiply to the paper's s_qk². The preset `ngpt` combines all these.
    """

    examples: ClassVar[Examples] = ({}, {"absolute": True})
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["ngpt"] = "ngpt"
    supports: ClassVar[Operations] = BY_TOKEN
    norms_per_branch: ClassVar[int] = 0
    normalises_stream: ClassVar[bool] = True
    additive: ClassVar[bool] = False
    rate: Annotated[PositiveFloat, ValuesInTests()] = 0.05
    """Initial value of α; the paper's is about 1 / n_layers."""
    absolute: bool = Field(default=False, exclude_if=is_off)
    """Whether the step is |α|, as in the authors' code (https://github.com/NVIDIA/ngpt), instead of the paper's α."""

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return NGPTLayer(self, site.d_model)

    def extra_cost(self, d_model: int) -> PartCost:
        return PartCost(d_model)

    def open(self, x: Tensor) -> Tensor:
        return unit(x)


class NGPTLayer(ResidualLayer):
    """x: (B, T, D), unit vectors, and branch → (B, T, D), unit vectors."""

    roles: ClassVar = {"alpha": "gain"}

    def __init__(self, spec: NGPT, d_model: int) -> None:
        super().__init__()
        self.stream_scale, self.branch_scale = spec.stream_scale, spec.branch_scale
        self.factor, self.absolute = spec.rate * math.sqrt(d_model), spec.absolute
        self.initial = {"alpha": 1 / math.sqrt(d_model)}
        self.alpha = nn.Parameter(torch.full((d_model,), self.initial["alpha"]))

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        """α ⊙ (N(f(x)) − x)."""
        alpha = self.alpha.abs() if self.absolute else self.alpha
        return alpha * self.factor * (unit(branch(x)) * self.branch_scale - x)

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        return unit(x * self.stream_scale + update)


def unit(x: Tensor) -> Tensor:
    """x / ‖x‖ over the last dimension, computed in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.normalize(wide, dim=-1).to(x.dtype)
