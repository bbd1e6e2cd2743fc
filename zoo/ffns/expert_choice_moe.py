"""Mixture of experts with expert-choice routing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError
from zoo.ffns import FfnLayer
from zoo.ffns._moe import MoE, MoELayer
from zoo.ffns._routing import LinearRouter, Router, Routing
from zoo.settings.axis import Examples
from zoo.settings.edits import Edits
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass, LayerSite, PartCost

ALONE = ("capacity_factor", "balance_loss", "router_z_loss", "zero_experts", "copy_experts", "constant_experts")
"""Settings that apply only if tokens choose experts."""


class ExpertChoiceMoE(MoE):
    """y_t = Σ_{e: t ∈ top-k_t′(S_t′e)} S_te FFN_e(x_t), S = softmax_e(W_router x): every expert takes the k = c·T/E
    tokens of a text with its highest scores. All experts have the same load; a token may have none or several. Zhou et
    al. 2022, arXiv:2202.09368.

    A token's choice depends on later tokens, so only bidirectional models (encoders) can use it: in a causal model it
    would leak the future, and decoding token by token could not reproduce it. The paper chooses among the tokens of a
    batch; here each text is routed separately, without its padding. k is rounded up, and ties go to the earlier token.
    """

    examples: ClassVar[Examples] = ({"d_ff": 20, "experts": 5},)
    requires: ClassVar[Edits] = {"visible": "all"}
    sees_text: ClassVar[bool] = True
    kind: Literal["expert_choice_moe"] = "expert_choice_moe"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    top_k: Annotated[PositiveInt, MaxInTests(2)] = 2
    """c: mean number of experts per token."""

    def resolve(self, d_model: int) -> Self:
        for name in ALONE:
            if getattr(self, name):
                raise SpecError(
                    name, "not applicable: with expert choice, every expert takes the same number of tokens"
                )
        if self.weights_on == "input":
            raise SpecError("weights_on", "must be output with expert choice")
        return super().resolve(d_model)

    def check_causal(self) -> None:
        raise SpecError("", "expert_choice_moe needs visible: all: experts choose among all tokens of a text")

    def taken(self, tokens: int) -> int:
        """k: number of tokens that an expert takes from a text of `tokens` tokens."""
        return math.ceil(self.top_k * tokens / self.experts)

    def cost_at(self, d_model: int, context: int) -> PartCost:
        more = self.taken(context) * self.experts / context - self.top_k
        expert = self._expert_cost(d_model)
        return self.cost(d_model) + replace(expert, parameters=0).for_share(more)

    def parameters_read(self, d_model: int, tokens: int) -> float:
        return self.cost(d_model).parameters

    def router(self, d_model: int) -> Router:
        return ExpertChoiceRouter(d_model, self.experts, hidden=self.router_hidden)

    def build(self, site: LayerSite) -> FfnLayer:
        return ExpertChoiceLayer(self, site.d_model)


class ExpertChoiceRouter(LinearRouter):
    """x: (B, T, D) → `Routing` with probabilities S and empty choices, since the experts choose in `routed`."""

    def forward(self, x: Tensor, tokens: Tensor | None = None) -> Routing:
        logits = self.logits(x)
        nobody = logits.new_zeros((*logits.shape[:-1], 0))
        return Routing(logits, logits.softmax(dim=-1), nobody.long(), nobody, nobody.long())


class ExpertChoiceLayer(MoELayer):
    """x: (B, T, D) → (B, T, D)."""

    spec: ExpertChoiceMoE

    def routed(self, read: Tensor, routing: Routing, step: ForwardPass) -> Tensor:
        scores = routing.probabilities.transpose(1, 2)  # S: (B, E, T)
        text = step.text
        if text is not None:
            scores = scores.masked_fill(~text[:, None], -1.0)
        # Stable, since equal tokens without positions or context have equal scores.
        ranked = scores.sort(dim=-1, descending=True, stable=True)
        weights, places = (each[..., : self.spec.taken(read.shape[1])] for each in ranked)  # (B, E, k)
        if text is not None:
            # A text with padding has fewer tokens: its own k applies, and the weights of further places become 0.
            own = torch.ceil(self.spec.top_k * text.sum(1, keepdim=True) / self.spec.experts)
            weights = weights * (torch.arange(weights.shape[-1], device=read.device) < own)[:, None]
        index = places[..., None].expand(-1, -1, -1, read.shape[-1])
        rows = read[:, None].expand(-1, self.spec.experts, -1, -1).gather(2, index)  # (B, E, k, D)
        given = self.experts.each(rows.transpose(0, 1).flatten(1, 2)).unflatten(1, (read.shape[0], -1))  # (E, B, k, D)
        out: Tensor = given.new_zeros(read.shape)
        # Expert by expert, each with a token at most once, so that the order of the sum is deterministic.
        for number, part in enumerate(given):
            out = out.scatter_add(1, index[:, number], part * weights[:, number, :, None].to(part.dtype))
        step.tap("ffn.load", lambda: scores.new_full((self.spec.experts,), 1 / self.spec.experts))
        return out
