"""Manifold-constrained hyper-connections."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import Operation, Operations
from zoo.kernels.precision import in_float32
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import Examples
from zoo.site import LayerSite, PartCost

EPS = 1e-6
"""Epsilon of the norm over the streams."""
APART = 8.0
"""Initial diagonal of H_res's constant logits, whose rest is 0: H_res is within about 0.1 % of I for four streams."""


class ManifoldHyperConnections(Residual):
    """n residual streams, mixed by doubly stochastic matrices, which neither amplify nor attenuate the shortcut's
    signal. Xie et al. 2025, arXiv:2512.24880.

    X: (n, D) → H_res X + H_postᵀ f(norm(H_pre X)), with H_pre, H_post: (1, n), H_res: (n, n). From a token's own
    streams, x⃗' = x⃗ / rms(x⃗) with x⃗ = vec(X): (n·D):
    H_pre = σ(α_pre x⃗' φ_pre + b_pre), H_post = 2 σ(α_post x⃗' φ_post + b_post),
    H_res = Sinkhorn–Knopp(exp(α_res mat(x⃗' φ_res) + b_res)): columns, then rows, are divided by their sums,
    `iterations` times.

    α = 0.01 at the start, as in the paper, which leaves the initial b and φ open. Here a branch starts as pre-norm: b
    makes H_pre the mean of the streams, H_post all ones and H_res nearly the identity; φ ~ N(0, 1/(n·D)), since with
    φ = 0 streams that start equal would stay equal. The streams start as copies of the embedded token and their sum is
    the output, as in hyper-connections.
    """

    examples: ClassVar[Examples] = ({"n": 3, "iterations": 5}, {"n": 3, "iterations": None})
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["mhc"] = "mhc"
    supports: ClassVar[Operations] = frozenset({Operation.WIDENING, Operation.SHARDING})
    norms_per_branch: ClassVar[int] = 1
    n: Annotated[int, Field(ge=2)] = 4
    """Number of streams: the paper's expansion rate."""
    iterations: PositiveInt | None = 20
    """Iterations of Sinkhorn–Knopp; null for H_res = I: streams are read and written, but not mixed (Hunyuan V4)."""

    @property
    def streams(self) -> int | None:
        return self.n

    @property
    def mixes(self) -> bool:
        """Whether streams are mixed, by H_res."""
        return self.iterations is not None

    @property
    def logits(self) -> int:
        """Number of weights computed per token: entries of H_pre, H_post and H_res."""
        return self.n * (self.n * self.mixes + 2)

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return ManifoldLayer(self, norm, site.d_model)

    def extra_cost(self, d_model: int) -> PartCost:
        matrix = self.logits * self.n * d_model
        mixing = 2.0 * self.n * (self.n * self.mixes + 1) * d_model
        return PartCost.of(matrix + self.logits + 2 + self.mixes, 2.0 * matrix + mixing)


class ManifoldLayer(ResidualLayer):
    """X: (B, T, n, D) and branch → (B, T, n, D)."""

    roles: ClassVar = {"weight": "input", "bias": "bias", "scale": "gain"}

    def __init__(self, spec: ManifoldHyperConnections, norm: MakeNorm, d_model: int) -> None:
        super().__init__()
        self.n, self.iterations = spec.n, spec.iterations
        self.stream_scale, self.branch_scale = spec.stream_scale, spec.branch_scale
        self.norm_in = norm()
        # φ, b and α of H_pre, H_post and H_res, in this order.
        self.weight = nn.Parameter(torch.zeros(spec.logits, spec.n * d_model))
        self.bias = nn.Parameter(torch.zeros(spec.logits))
        self.scale = nn.Parameter(torch.zeros(2 + spec.mixes))
        mean = torch.full((spec.n,), -math.log(spec.n - 1))  # σ(−log(n − 1)) = 1/n
        kept = APART * torch.eye(spec.n).flatten() if spec.mixes else torch.zeros(0)
        self.initial = {"scale": 0.01, "bias": torch.cat((mean, torch.zeros(spec.n), kept))}

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        """H_postᵀ f(norm(H_pre X)) + (H_res − I) X: the change of X, so that the unchanged part is not rounded."""
        mixture = in_float32(self.mixture, x, self.weight, self.bias, self.scale)
        read = mixture[..., :1, :]
        if self.iterations is not None:
            keep = mixture[..., 2:, :] - torch.eye(self.n, dtype=mixture.dtype, device=mixture.device)
            read = torch.cat((read, keep), dim=-2)
        mixed = read.to(x.dtype) @ x
        out = branch(self.norm_in(mixed[..., 0, :])) * self.branch_scale
        update: Tensor = out[..., None, :] * mixture[..., 1, :, None].to(out.dtype)
        return update if self.iterations is None else update + mixed[..., 1:, :] * self.stream_scale

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        return x * self.stream_scale + update

    def mixture(self, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        """(B, T, n, D) → (B, T, 2 + n, n): H_pre, H_post and the rows of H_res; (B, T, 2, n) without H_res."""
        flat = F.rms_norm(x.flatten(-2), (weight.shape[1],), eps=EPS)
        asked = F.linear(flat, weight).unflatten(-1, (-1, self.n))
        alphas = torch.cat((scale[:2], scale[2:].expand(asked.shape[-2] - 2)))
        logits = asked * alphas[:, None] + bias.view(-1, self.n)
        parts = [logits[..., :1, :].sigmoid(), 2 * logits[..., 1:2, :].sigmoid()]
        if self.iterations is not None:
            parts.append(doubly_stochastic(logits[..., 2:, :], self.iterations))
        return torch.cat(parts, dim=-2)


def doubly_stochastic(logits: Tensor, iterations: int) -> Tensor:
    """(…, n, n) logits → exp(logits), columns and rows alternately divided by their sums. Computed on logarithms, which
    do not overflow. Rows sum to one, columns approximately."""
    for _ in range(iterations):
        logits = logits.log_softmax(dim=-2).log_softmax(dim=-1)
    return logits.exp()
