"""Attention residuals over blocks of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import Operation, Operations
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import Examples
from zoo.site import LayerSite, PartCost


class AttentionResiduals(Residual):
    """h = Σ_i α_i b_i, α = softmax_i(w · norm(b_i)): each branch reads its own mixture of the earlier outputs. Block
    AttnRes of Kimi Team 2026, arXiv:2603.15031 §3.

    b_0 is the embedded token. The layers form N blocks of consecutive layers; b_n is the sum of the branch outputs
    f(norm(h)) in block n. A branch reads b_0 … b_{n−1} and, unless it is the first of its block, the partial sum of
    block n (eq. 5 and 6); the stack's output is such a mixture of b_0 … b_N. Each branch has its own w: (D,), zero at
    the start, which makes α uniform. The first branch reads b_0 alone and has no w.

    The paper counts mixers and FFNs as layers; here blocks end between whole layers. The stream is (B, T, N + 1, D).
    """

    examples: ClassVar[Examples] = ({"blocks": 2},)
    kind: Literal["attention_residuals"] = "attention_residuals"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    norms_per_branch: ClassVar[int] = 1
    numbers_layers: ClassVar[bool] = True
    closes_with_norms: ClassVar[bool] = True
    blocks: PositiveInt = 8
    """N: number of blocks, at most the number of layers."""

    @property
    def streams(self) -> int | None:
        return self.blocks + 1

    def block(self, layer: int, n_layers: int) -> int:
        """Block index n of a layer, counted from 1."""
        return 1 + layer * min(self.blocks, n_layers) // n_layers

    def seen(self, layer: int, n_layers: int, nth: int) -> int:
        """Number of sources that the layer's branch `nth`, counted from 0, reads."""
        own = self.block(layer, n_layers)
        opens = nth == 0 and (layer == 0 or self.block(layer - 1, n_layers) < own)
        return own if opens else own + 1

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return AttentionResidualLayer(self, norm, site)

    def build_close(self, norm: MakeNorm, d_model: int, n_layers: int) -> nn.Module:
        return DepthAttention(norm, d_model, 1 + min(self.blocks, n_layers))

    def depth_cost(self, d_model: int, norm: int, branches: Sequence[Sequence[int]]) -> PartCost:
        total, layers = PartCost(0), len(branches)
        of_branches = [self.seen(layer, layers, nth) for layer, numbers in enumerate(branches) for nth in numbers]
        for seen in (*of_branches, 1 + min(self.blocks, layers)):  # the last one: sources of the stack's output
            if seen > 1:
                total += PartCost.of(d_model + norm, 4.0 * seen * d_model)
        return total

    def open(self, x: Tensor) -> Tensor:
        return F.pad(x[..., None, :], (0, 0, 0, self.blocks))


class DepthAttention(nn.Module):
    """(B, T, N + 1, D) → mixture of the first `seen` sources: (B, T, D)."""

    roles: ClassVar = {"query": "bias"}

    def __init__(self, norm: MakeNorm, d_model: int, seen: int) -> None:
        super().__init__()
        self.seen = seen
        if seen > 1:
            self.norm = norm()
            self.query = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        if self.seen == 1:
            return x[..., 0, :]
        sources = x[..., : self.seen, :]
        logits = F.linear(self.norm(sources), self.query[None])[..., 0]
        # Softmax in float32 or wider, whatever the sources' dtype. Then (B, T, 1, n) times (B, T, n, D).
        weights = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1)
        return (weights.to(sources.dtype)[..., None, :] @ sources)[..., 0, :]


class AttentionResidualLayer(ResidualLayer):
    """Stream (B, T, N + 1, D) and branch → the stream with the branch's output added to the sum of its block."""

    def __init__(self, spec: AttentionResiduals, norm: MakeNorm, site: LayerSite) -> None:
        super().__init__()
        self.stream_scale, self.branch_scale = spec.stream_scale, spec.branch_scale
        self.norm_in = norm()
        self.depth = DepthAttention(norm, site.d_model, spec.seen(site.layer, site.n_layers, site.nth))
        self.own = spec.block(site.layer, site.n_layers)

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        return branch(self.norm_in(self.depth(x))) * self.branch_scale

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        x = x * self.stream_scale
        grown = x[..., self.own : self.own + 1, :] + update[..., None, :]
        return torch.cat((x[..., : self.own, :], grown, x[..., self.own + 1 :, :]), dim=-2)
