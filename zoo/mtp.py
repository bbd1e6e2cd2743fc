"""Multi-token prediction: modules that look further ahead while training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from zoo.axis import Spec
from zoo.cache import LayerCache
from zoo.facts import Fact
from zoo.init import Linear
from zoo.loss import Head, summed_loss
from zoo.residuals import MakeNorm, Residual
from zoo.site import PartCost, Step, matmul_cost

if TYPE_CHECKING:
    from zoo.block import Block


class MultiTokenPrediction(Spec):
    """Module k = 1 … depth predicts t_{i+k+1} at token i. DeepSeek V3, arXiv:2412.19437 §2.2.

    h^k = block(W [norm(h^{k−1}_i); norm(emb(t_{i+k}))]), with h⁰ the stream that leaves the last layer, a block of the
    last layer's kind, and the model's own embedding, final norm and head. The objective gets weight/depth · Σ_k L_k,
    where L_k is the sum of module k's losses over the number of the model's own targets. Forward passes and decoding
    do not run the modules.

    With `final_norm: own`, h^k = norm_k(block(…)) is what the head and the next module read, and h⁰ is the stream after
    the model's final norm. So are the modules in the released weights of DeepSeek-V3 and Qwen3-Next.
    """

    depth: PositiveInt = 1
    weight: Annotated[NonNegativeFloat, Fact.TRAINING] = 0.3
    final_norm: Literal["shared", "own"] = Field(default="shared", exclude_if=lambda whose: whose == "shared")
    """The norm before the head: the model's, or one of each module's own."""

    @property
    def norms(self) -> int:
        """Of a module, beside its block's."""
        return 3 if self.final_norm == "own" else 2

    def cost(self, d_model: int, context: int, norm: int, block: Callable[[int], PartCost], head: PartCost) -> PartCost:
        """Per token of a sequence of `context`: module k sees `context` − k of them.

        norm: parameters of one. block(context): one block. head: the head's work; its parameters are the model's.
        """
        total, matrix = PartCost(0), 2 * d_model * d_model
        for k in range(1, self.depth + 1):
            seen = max(0, context - k)
            part = block(max(1, seen)) + matmul_cost(matrix + self.norms * norm, matrix)
            work = replace(part, inactive=part.parameters) + replace(head, parameters=0)
            total += work.for_share(seen / context)
        return total


class MtpModule(nn.Module):
    """hidden: h^{k−1}, embedded: emb(t_{i+k}), both (B, n, D) → h^k."""

    def __init__(
        self, spec: MultiTokenPrediction, norm: MakeNorm, block: Block, placement: Residual, d_model: int
    ) -> None:
        super().__init__()
        self.hidden_norm, self.token_norm = norm(), norm()
        self.final_norm = norm() if spec.final_norm == "own" else None
        self.project = Linear(2 * d_model, d_model, role="input")
        self.block = block
        self.placement = placement

    def forward(self, hidden: Tensor, embedded: Tensor, step: Step, cache: LayerCache | None = None) -> Tensor:
        joined = torch.cat((self.hidden_norm(hidden), self.token_norm(embedded)), dim=-1)
        stream: Tensor = self.placement.close(self.block(self.placement.open(self.project(joined)), step, cache))
        return stream if self.final_norm is None else self.final_norm(stream)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return self.block.new_cache(batch, capacity, dtype, memory=0)


def mtp_loss(
    modules: Iterable[nn.Module],
    hidden: Tensor,
    embedded: Tensor,
    targets: Tensor,
    step: Step,
    head: Head,
    count: Tensor,
) -> Tensor:
    """Σ_k L_k. hidden: h⁰, embedded: emb(t), both (B, T, D); targets: (B, T), t_{i+1}; head: what reads h^k; the rest
    as for `next_token_loss`."""
    total = hidden.new_zeros((), dtype=torch.float32)
    for k, module in enumerate(modules, start=1):
        if k >= targets.shape[1]:
            break
        ahead = Step(step.index[k:], shared=step.shared, start=step.start + k, losses=step.losses)
        ahead.recorder, ahead.prefix = step.recorder, f"mtp.{k - 1}."
        hidden, goals = module(hidden[:, :-1], embedded[:, k:], ahead), targets[:, k:]
        total = total + summed_loss(head, hidden, goals).objective
    return total / count
