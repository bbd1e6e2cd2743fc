"""Branches with a learned scale that starts at zero."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.site import LayerSite, PartCost


class ReZero(Residual):
    """y = x + α f(x), α a learned scalar per branch, 0 at the start, so that every layer begins as the identity and
    needs no norm. Bachlechner et al. 2020, arXiv:2003.04887.

    The two branches of a layer have one α each; in the authors' code they share one. The norm before the head remains.
    """

    kind: Literal["rezero"] = "rezero"
    paired_examples: ClassVar[int | None] = 0
    supports: ClassVar[Operations] = BY_TOKEN
    norms_per_branch: ClassVar[int] = 0
    normalises_branch: ClassVar[bool] = False
    adds: ClassVar[bool] = True

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return ReZeroLayer(self)

    def extra_cost(self, d_model: int) -> PartCost:
        return PartCost(1)


class ReZeroLayer(ResidualLayer):
    """x: (B, T, D) and branch → (B, T, D)."""

    roles: ClassVar = {"alpha": "gain"}
    initial: ClassVar = {"alpha": 0.0}

    def __init__(self, spec: ReZero) -> None:
        super().__init__()
        self.stream_scale, self.branch_scale = spec.stream_scale, spec.branch_scale
        self.alpha = nn.Parameter(torch.zeros(1))

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        return branch(x) * (self.alpha * self.branch_scale)

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        return x * self.stream_scale + update
