"""Mixture-of-Depths: blocks that run on a share of the tokens, which they choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.block_features import BlockFeature
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import ChunkCache
from zoo.compatibility.traits import TOKENS_ROUTED, Ground, Grounds, Operation, Operations
from zoo.init import Linear
from zoo.kernels.compiling import is_fake
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, PartCost, matmul_cost

Run = Callable[[Tensor, ForwardPass, LayerCache | None], Tensor]
"""Some tokens (B, M, D), their pass and a cache → (B, M, D)."""


class DepthRouting(BlockFeature):
    """x_t ← x_t + r_t (block(x_chosen)_t − x_t) for chosen tokens, r = w · x; other tokens pass unchanged.
    Mixture-of-Depths, Raposo et al. 2024, arXiv:2404.02258.

    Training chooses the ⌈C·T⌉ tokens of a text with the largest r, so a token's choice depends on later tokens, and
    FLOPs are those declared. Everywhere else the choice is causal: tokens with σ(r) > ½. To train for that choice, the
    objective gets `loss` times the binary cross-entropy between σ(r) and training's choice, the first of the paper's
    two methods (§3.5). So training losses and evaluation losses are of different choices, and evaluation may choose
    more or fewer tokens than the ⌈C·T⌉ that costs declare.

    The block sees only the chosen tokens: windows and convolutions count these. Positions are those in the text.
    """

    needs: ClassVar[Grounds] = frozenset({Ground.CAUSAL, Ground.SINGLE_STREAM, Ground.WHOLE_BLOCKS, Ground.SAME_WORK})
    breaks: ClassVar[Grounds] = TOKENS_ROUTED
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})

    capacity: Annotated[float, Field(gt=0, lt=1)] = 0.125
    """C: share of the tokens that the block runs on; the paper routes every second block."""
    loss: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.01
    """Weight of the binary cross-entropy in the objective; the paper gives none."""

    @property
    def ratio(self) -> float:
        """Tokens per chosen token: 1/C."""
        return 1 / self.capacity

    def count(self, tokens: int) -> int:
        """Number of tokens of a text that the block processes in training."""
        return math.ceil(self.capacity * tokens)

    def cost_around(self, d_model: int) -> PartCost:
        return matmul_cost(d_model, d_model)


class DepthRouter(nn.Module):
    """x: (B, T, D) → (B, T, D). Taps `routed`: (B, T), whether the block runs on each token."""

    def __init__(self, spec: DepthRouting, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.weigh = Linear(d_model, 1, role="input")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None, run: Run) -> Tensor:
        weights: Tensor = self.weigh(x)[..., 0]
        if self.training:
            most = self.spec.count(weights.shape[1])
            chosen = largest(weights, most)
            target = chosen.to(weights.dtype)
            step.losses.append(self.spec.loss * F.binary_cross_entropy_with_logits(weights, target))
        else:  # the causal choice, σ(r) > ½
            chosen = weights > 0 if step.text is None else (weights > 0) & step.text
            # Fake tensors, as in memory estimates, have no values: the expected number stands in.
            fake = is_fake(chosen)
            most = self.spec.count(chosen.shape[1]) if fake else max(1, int(chosen.sum(dim=1).max()))
        step.tap("routed", lambda: chosen)
        which, there = arranged(chosen, most)  # (B, M)
        index = which[..., None].expand(-1, -1, x.shape[-1])
        read = x.gather(1, index)
        places = step.positions.expand(x.shape[:2]).gather(1, which)
        kept = kept_by(self, cache, ChunkCache)
        if kept is None:
            out = run(read, step.inner(most, 0, places), None)
        else:  # each row by itself: its chosen tokens continue those in its cache
            out = read.clone()
            for row, count in enumerate(there.sum(dim=1).tolist()):
                if count:
                    rows = slice(row, row + 1)
                    own = step.inner(count, kept.lengths[row], places[rows, :count])
                    out[rows, :count] = run(read[rows, :count], own, kept.rows[row][0])
                    kept.lengths[row] += count
        share = weights.gather(1, which).masked_fill(~there, 0.0)[..., None]
        return x.scatter_add(1, index, (share * (out - read)).to(x.dtype))


def largest(weights: Tensor, count: int) -> Tensor:
    """(B, T): whether each weight is among the `count` largest of its row."""
    best = weights.topk(count, dim=1).indices
    return torch.zeros_like(weights, dtype=torch.bool).scatter(1, best, True)


def arranged(chosen: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(B, M) each, with M = `most`: indices of the chosen tokens in order, and whether each entry is chosen. Rows with
    fewer chosen tokens are filled up with others at the end."""
    which = chosen.logical_not().to(torch.int8).argsort(dim=1, stable=True)[:, :most]
    return which, torch.arange(most, device=chosen.device) < chosen.sum(dim=1, keepdim=True)
