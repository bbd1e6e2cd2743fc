"""Gates instead of the residual sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.init import Linear
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import Examples
from zoo.site import LayerSite, PartCost, matmul_cost

MATRICES: Mapping[str, tuple[str, ...]] = {
    "gru": ("w_r", "u_r", "w_z", "u_z", "w_g", "u_g"),
    "output": ("w_g",),
    "input": ("w_g",),
    "highway": ("w_g",),
    "sigmoid_tanh": ("w_g", "u_g"),
}
"""Names of each gate's matrices, all (D, D)."""
WITHOUT_BIAS = ("input",)


class Gated(Residual):
    """x ← g(x, ReLU(f(norm(x)))), with a learned gate g instead of a sum. Parisotto et al. 2019 (GTrXL),
    arXiv:1910.06764.

    With y = ReLU(f(norm(x))), and b > 0 at the start, so that a layer begins near the identity:
    gru: (1 − z) ⊙ x + z ⊙ tanh(W_g y + U_g (r ⊙ x)), r = σ(W_r y + U_r x), z = σ(W_z y + U_z x − b)
    output: x + σ(W_g x − b) ⊙ y; input: σ(W_g x) ⊙ x + y; highway: h ⊙ x + (1 − h) ⊙ y, h = σ(W_g x + b);
    sigmoid_tanh: x + σ(W_g y − b) ⊙ tanh(U_g y).
    """

    examples: ClassVar[Examples] = ({}, *({"gate": gate} for gate in MATRICES if gate != "gru"))
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["gated"] = "gated"
    supports: ClassVar[Operations] = BY_TOKEN
    norms_per_branch: ClassVar[int] = 1
    additive: ClassVar[bool] = False
    gate: Literal["gru", "output", "input", "highway", "sigmoid_tanh"] = "gru"
    """The gate g; the paper's best is `gru`."""
    bias: PositiveFloat = 2.0
    """Initial value of b, (D,); the gate `input` has no b."""

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return GatedLayer(self, norm, site.d_model)

    def extra_cost(self, d_model: int) -> PartCost:
        matrices = len(MATRICES[self.gate]) * d_model**2
        return matmul_cost(matrices + (0 if self.gate in WITHOUT_BIAS else d_model), matrices)


class GatedLayer(ResidualLayer):
    """x: (B, T, D) and branch → (B, T, D)."""

    roles: ClassVar = {"bias": "bias"}

    def __init__(self, spec: Gated, norm: MakeNorm, d_model: int) -> None:
        super().__init__()
        self.stream_scale, self.branch_scale, self.gate = spec.stream_scale, spec.branch_scale, spec.gate
        self.norm_in = norm()
        names = MATRICES[spec.gate]
        self.matrices = nn.ModuleDict({name: Linear(d_model, d_model, role="input") for name in names})
        self.bias = None if spec.gate in WITHOUT_BIAS else nn.Parameter(torch.full((d_model,), spec.bias))
        self.initial = {"bias": spec.bias}

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        return branch(self.norm_in(x)).relu() * self.branch_scale

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        x, y, b = x * self.stream_scale, update, 0.0 if self.bias is None else self.bias

        def read(name: str, of: Tensor) -> Tensor:
            out: Tensor = self.matrices[name](of)
            return out

        if self.gate == "gru":
            r = (read("w_r", y) + read("u_r", x)).sigmoid()
            z = (read("w_z", y) + read("u_z", x) - b).sigmoid()
            return (1 - z) * x + z * (read("w_g", y) + read("u_g", r * x)).tanh()
        if self.gate == "output":
            return x + (read("w_g", x) - b).sigmoid() * y
        if self.gate == "input":
            return read("w_g", x).sigmoid() * x + y
        if self.gate == "highway":
            share = (read("w_g", x) + b).sigmoid()
            return share * x + (1 - share) * y
        return x + (read("w_g", y) - b).sigmoid() * read("u_g", y).tanh()
