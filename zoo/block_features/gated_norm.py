"""Gated norms: what a branch reads is multiplied with a gate read from it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block_features import BeforeBranches
from zoo.compatibility.traits import NONE, OF_MODULES, Grounds, Operations
from zoo.init import Linear
from zoo.settings.field_tags import Fact
from zoo.site import PartCost, matmul_cost


class GatedNorm(BeforeBranches):
    """y ← y ⊙ σ(W_up silu(W_down y)) on the norm's output y that a branch reads. W_down: (r, D), W_up: (D, r).
    GatedNorm, Qiu et al. 2026, arXiv:2601.22966.

    A feature is rescaled by the gate, with no need of an outlier that the norm divides by. A.X K2 has it before every
    mixer and before its experts. Norms of latents, of heads and before the head have no gate; where mixer and FFN read
    one norm's output, each branch has a gate of its own. It comes before the convolution of Canon layers.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = OF_MODULES

    rank: Annotated[PositiveInt, Fact.WIDTH] = 16
    """r: features that the gate is read through."""

    def build(self, d_model: int) -> nn.ModuleDict:
        """A gate for each branch."""
        return nn.ModuleDict({place: NormGate(d_model, self.rank) for place in sorted(set(self.before))})

    def cost(self, d_model: int, norm: int) -> PartCost:
        matrices = 2 * d_model * self.rank * len(set(self.before))
        return matmul_cost(matrices, matrices)


class NormGate(nn.Module):
    """y: (B, T, D) → (B, T, D)."""

    def __init__(self, d_model: int, rank: int) -> None:
        super().__init__()
        self.down = Linear(d_model, rank, role="input")
        self.up = Linear(rank, d_model, role="input")

    def forward(self, y: Tensor) -> Tensor:
        return y * self.up(F.silu(self.down(y))).sigmoid()
