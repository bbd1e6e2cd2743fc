"""A gate on the heads' output."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.init import Linear

Gate = Literal["feature", "head", "feature_softplus", "head_softplus"]
SOFTPLUS = "_softplus"


def gate_features(kind: Gate | None, heads: int, head_dim: int) -> int:
    """Number of gates per token."""
    if kind is None:
        return 0
    return heads if kind.startswith("head") else heads * head_dim


class OutputGate(nn.Module):
    """heads: (B, T, H·d) ⊙ σ(W x (+ b)), x: (B, T, D), one gate per feature or per head (Qiu et al. 2025,
    arXiv:2505.06708), or softplus in the place of σ (Laguna, Poolside 2026,
    https://huggingface.co/poolside/Laguna-XS.2)."""

    def __init__(self, kind: Gate, d_model: int, heads: int, head_dim: int, bias: bool) -> None:
        super().__init__()
        self.repeat = head_dim if kind.startswith("head") else 1
        self.softplus = kind.endswith(SOFTPLUS)
        self.project = Linear(d_model, gate_features(kind, heads, head_dim), bias=bias, role="input")

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        read = self.project(x)
        gate: Tensor = F.softplus(read) if self.softplus else read.sigmoid()
        return heads * gate.repeat_interleave(self.repeat, dim=-1)
