"""Hyper-connections."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from zoo.compatibility.traits import Operation, Operations
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import Examples
from zoo.site import LayerSite, PartCost


class HyperConnections(Residual):
    """n residual streams with learned weights for reading, mixing and writing. Zhu et al. 2024, arXiv:2409.19606.

    H: (n, D) → A_rᵀ H + Bᵀ f(norm(A_mᵀ H)), with A_m: (n, 1), A_r: (n, n), B: (1, n).
    `dynamic` makes these depend on the token, with H̄ = norm(H) row by row (eq. 10–13):
    A_m + s_α tanh(H̄ W_m), A_r + s_α tanh(H̄ W_r), B + s_β tanh(H̄ W_β)ᵀ; s_α = s_β = 0.01 and W = 0 at the start.

    The streams start as n copies of the embedded token; the output is their sum. At the start A_r = I, B is all ones
    and A_m selects stream k mod n in the model's k-th branch, which is then pre-norm. Projections that write to the
    streams start with 1/√n of their usual standard deviation: §4 scales it "by a factor of √n", so that the sum of the
    streams keeps the standard deviation of a model without hyper-connections. Only a division achieves that; the text
    leaves the direction open.
    """

    examples: ClassVar[Examples] = ({}, {"n": 3, "dynamic": False})
    kind: Literal["hyper_connections"] = "hyper_connections"
    supports: ClassVar[Operations] = frozenset({Operation.WIDENING, Operation.SHARDING})
    norms_per_branch: ClassVar[int] = 1
    n: Annotated[int, Field(ge=1)] = 4
    """Number of streams: the paper's expansion rate."""
    dynamic: bool = True
    """Whether the weights also depend on the token (W_m, W_r and W_β)."""

    @property
    def streams(self) -> int | None:
        return self.n

    @property
    def norms(self) -> int:
        """Number of norms per branch: the branch's own, and that of the dynamic weights."""
        return 2 if self.dynamic else 1

    @property
    def init_output_factor(self) -> float:
        return 1 / math.sqrt(self.n)

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return HyperLayer(self, norm, site)

    def extra_cost(self, d_model: int) -> PartCost:
        weights = self.n * (self.n + 2)
        mixing = 2.0 * self.n * (self.n + 1) * d_model
        if not self.dynamic:
            return PartCost.of(weights, mixing)
        reading = 2.0 * self.n * (self.n + 2) * d_model
        return PartCost.of(weights + (self.n + 2) * d_model + 2, mixing + reading)


class HyperLayer(ResidualLayer):
    """H: (B, T, n, D) and branch → (B, T, n, D)."""

    roles: ClassVar = {"read": "gain", "write": "gain"}

    def __init__(self, spec: HyperConnections, norm: MakeNorm, site: LayerSite) -> None:
        super().__init__()
        self.stream_scale, self.branch_scale = spec.stream_scale, spec.branch_scale
        self.norm_in = norm()
        self.read = nn.Parameter(torch.zeros(spec.n, spec.n + 1))
        """A_m and A_r, side by side."""
        self.write = nn.Parameter(torch.zeros(spec.n))
        """B."""
        self.asked = DynamicMix(spec.n, norm, site.d_model) if spec.dynamic else None
        picked = nn.functional.one_hot(torch.tensor(site.branch % spec.n), spec.n)
        self.initial = {"read": torch.cat((picked[:, None], torch.eye(spec.n)), dim=1)}

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        """Bᵀ f(norm(A_mᵀ H)) + (A_r − I)ᵀ H: the change of H, so that the unchanged part is not rounded."""
        read, write = (self.read, self.write) if self.asked is None else self.asked(x, self.read, self.write)
        keep = torch.eye(x.shape[-2], dtype=read.dtype, device=read.device)
        read = torch.cat((read[..., :1], read[..., 1:] - keep), dim=-1)
        mixed = read.transpose(-1, -2) @ x
        out = branch(self.norm_in(mixed[..., 0, :])) * self.branch_scale
        return out[..., None, :] * write[..., None] + mixed[..., 1:, :] * self.stream_scale

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        return x * self.stream_scale + update


class DynamicMix(nn.Module):
    """Adds weights computed from the token's streams to the constant ones. Weight decay applies to the matrices here,
    not to the constant weights."""

    roles: ClassVar = {"weight": "input", "scale": "gain"}
    initial: ClassVar = {"scale": 0.01}
    init_gain: ClassVar[float] = 0.0

    def __init__(self, n: int, norm: MakeNorm, d_model: int) -> None:
        super().__init__()
        self.norm = norm()
        # W_m, W_r and W_β; s_α and s_β.
        self.weight = nn.Parameter(torch.zeros(n + 2, d_model))
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor, read: Tensor, write: Tensor) -> tuple[Tensor, Tensor]:
        """x: (B, T, n, D) → (B, T, n, n + 1) and (B, T, n)."""
        asked = nn.functional.linear(self.norm(x), self.weight).tanh()
        return read + self.scale[0] * asked[..., :-1], write + self.scale[1] * asked[..., -1]
