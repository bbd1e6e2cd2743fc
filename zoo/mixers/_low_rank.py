"""Projections through a few features."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from zoo.init import Linear


class LowRank(nn.Module):
    """x: (…, D) → W₂ f(W₁ x) (+ b): (…, out), W₁: (r, D)."""

    def __init__(
        self,
        dim_in: int,
        rank: int,
        dim_out: int,
        *,
        bias: bool = False,
        between: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.down = Linear(dim_in, rank, role="input")
        self.up = Linear(rank, dim_out, bias=bias, role="input")
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        inner = self.down(x)
        out: Tensor = self.up(inner if self.between is None else self.between(inner))
        return out
