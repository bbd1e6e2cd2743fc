"""A norm for each head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.norms import Norm


class NormPerHead(nn.Module):
    """(B, H, T, d) → (B, H, T, d): head h through norm h, with parameters of its own."""

    def __init__(self, norm: Norm, heads: int, head_dim: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm.build(head_dim) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([norm(head) for norm, head in zip(self.norms, x.unbind(1), strict=True)], dim=1)
