"""A gate on the heads' output."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from zoo.init import Linear

Gate = Literal["feature", "head"]


def gate_features(kind: Gate | None, heads: int, head_dim: int) -> int:
    """Number of gates per token."""
    return {None: 0, "feature": heads * head_dim, "head": heads}[kind]


class OutputGate(nn.Module):
    """heads: (B, T, H·d) ⊙ σ(W x (+ b)), x: (B, T, D), one gate per feature or per head. Qiu et al. 2025,
    arXiv:2505.06708."""

    def __init__(self, kind: Gate, d_model: int, heads: int, head_dim: int, bias: bool) -> None:
        super().__init__()
        self.repeat = head_dim if kind == "head" else 1
        self.project = Linear(d_model, gate_features(kind, heads, head_dim), bias=bias, role="input")

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        gate: Tensor = self.project(x).sigmoid()
        return heads * gate.repeat_interleave(self.repeat, dim=-1)
