"""Mixture of experts, routed by softmax."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.ffns._moe import MoE
from zoo.ffns._routing import LinearRouter, Router, Routing
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Supports, ValuesInTests


class TopKMoE(MoE):
    """y = Σ_{e ∈ top-k(z)} w_e FFN_e(x), z = W_router x. Mixtral, arXiv:2401.04088; gpt-oss, arXiv:2508.10925.

    w is the softmax of z over the chosen experts, or over all of them (Switch Transformer, arXiv:2101.03961; OLMoE,
    arXiv:2409.02060). x: (B, T, D). At the default widths a token costs as much as in a SwiGLU layer of 8/3x, plus the
    router.
    """

    examples: ClassVar[Examples] = (
        {"d_ff": 20, "experts": 5},
        {"d_ff": 20, "experts": 5, "activation": "clamped_swiglu", "router_bias": True, "router_z_loss": 1e-3},
        {"d_ff": 20, "experts": 5, "shared_experts": 1, "shared_d_ff": 14, "shared_gate": True},
        {"d_ff": 20, "experts": 5, "zero_experts": 1, "copy_experts": 2, "constant_experts": 1, "softmax_over": "all"},
    )
    paired_examples: ClassVar[int | None] = 3
    kind: Literal["topk_moe"] = "topk_moe"
    supports: ClassVar[Operations] = BY_TOKEN
    softmax_over: Literal["chosen", "all"] = "chosen"
    """Experts in the softmax of the weights w. With top_k 1, `chosen` makes w = 1, so that only auxiliary losses train
    the router."""
    margin: Annotated[NonNegativeFloat | None, ValuesInTests(0.3, paired=False), Supports(*BY_TOKEN)] = Field(
        default=None, exclude_if=lambda margin: margin is None
    )
    """ε: the softmax of the i-th choice is over the experts not chosen before it whose logits are near the largest m of
    theirs, (m − z_e) / max(|z_e|, m) ≤ 2ε: SparseMixer's routing at inference, in training without its random choices
    and gradients (Liu et al. 2024, arXiv:2409.12136; Phi-3.5-MoE); null for `softmax_over`."""
    router_bias: Annotated[bool, Supports(*BY_TOKEN)] = False
    """Whether the router's logits z have a learned bias, (E,)."""
    balance_loss: NonNegativeFloat = 0.01

    @property
    def router_bias_parameters(self) -> int:
        return self.choices * self.router_bias

    def router(self, d_model: int) -> Router:
        return TopKRouter(self, d_model)

    def resolve(self, d_model: int) -> Self:
        if self.margin is not None and self.softmax_over == "all":
            raise SpecError("margin", "cannot be combined with softmax_over: all")
        return super().resolve(d_model)


class TopKRouter(LinearRouter):
    """x: (..., D) → `Routing`."""

    def __init__(self, spec: TopKMoE, d_model: int) -> None:
        super().__init__(d_model, spec.choices, spec.router_bias, spec.router_hidden)
        self.top_k = spec.top_k
        self.softmax_over, self.margin = spec.softmax_over, spec.margin

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        logits = self.logits(x)
        best, chosen = logits.topk(self.top_k, dim=-1)
        probabilities = logits.softmax(dim=-1)
        if self.margin is not None:
            weights = weights_among_near(logits, best, chosen, self.margin)
        else:
            weights = best.softmax(dim=-1) if self.softmax_over == "chosen" else probabilities.gather(-1, chosen)
        return Routing(logits, probabilities, chosen, weights, counted=chosen)


def weights_among_near(logits: Tensor, best: Tensor, chosen: Tensor, margin: float) -> Tensor:
    """logits: (..., E), the k best of them and their indices: (..., k) → weights: (..., k)."""
    left, weights = logits, []
    for largest, index in zip(best.split(1, dim=-1), chosen.split(1, dim=-1), strict=True):
        far = (largest - left) / torch.maximum(logits.abs(), largest) > 2 * margin
        weights.append(left.masked_fill(far, -torch.inf).softmax(dim=-1).gather(-1, index))
        left = left.scatter(-1, index, -torch.inf)
    return torch.cat(weights, dim=-1)
