"""Gated norms: the input of a branch is multiplied by a gate computed from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block_features import BeforeBranches, BlockFeatureLayer, Place
from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import BY_TOKEN, NONE, Grounds, Operations
from zoo.init import Linear
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, PartCost, matmul_cost


class GatedNorm(BeforeBranches):
    """y ← y ⊙ σ(W_up silu(W_down y)) on the norm's output y that a branch reads. W_down: (r, D), W_up: (D, r).
    GatedNorm, Qiu et al. 2026, arXiv:2601.22966.

    The gate rescales features, so that no outlier is needed for the norm to divide by. A.X K2 has it before every mixer
    and before its experts. Norms of latents, of heads and before the head have no gate; if mixer and FFN read one
    norm's output, each branch has a gate of its own. The gate comes before the convolution of Canon layers.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = BY_TOKEN

    rank: Annotated[PositiveInt, Fact.WIDTH] = 16
    """r: inner width of the gate."""

    def build(self, d_model: int, norm: Callable[[], nn.Module]) -> NormGates:
        return NormGates({place: NormGate(d_model, self.rank) for place in sorted(set(self.before))})

    def cost(self, d_model: int, norm: int) -> PartCost:
        matrices = 2 * d_model * self.rank * len(set(self.before))
        return matmul_cost(matrices, matrices)


class NormGates(BlockFeatureLayer, nn.ModuleDict):
    """One gate for each branch of `before`."""

    name: ClassVar[str] = "gates"
    order: ClassVar[int] = 1

    def before(self, branch: Place, h: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        return self[branch](h) if branch in self else h


class NormGate(nn.Module):
    """y: (B, T, D) → (B, T, D)."""

    def __init__(self, d_model: int, rank: int) -> None:
        super().__init__()
        self.down = Linear(d_model, rank, role="input")
        self.up = Linear(rank, d_model, role="input")

    def forward(self, y: Tensor) -> Tensor:
        return y * self.up(F.silu(self.down(y))).sigmoid()
