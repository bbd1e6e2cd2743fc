"""Differential attention, version 2."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from torch import Tensor

from zoo.attending.visible import Scoring
from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._multi_head import MultiHead
from zoo.mixers.attention import AttentionLayer
from zoo.settings.axis import Examples
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class DifferentialV2(MultiHead):
    """head h = A_2h V − σ(λ_h) A_2h+1 V, A = softmax(QKᵀ/√d + mask), λ = W_λ x: (H), for each token.
    Ye et al. 2026, https://huggingface.co/blog/microsoft/diff-attn-v2, with the code of their repository unilm.

    H = `heads` counts output heads. There are 2H query heads of d features, by default d_model / H; neighbours share
    the keys and values of one of K heads. Keys, values, cache and W_o are as large as those of attention with H heads.
    Unlike in `differential`, λ depends on the token, no norm follows, and values have d features.
    """

    examples: ClassVar[Examples] = ({"head_dim": 6},)
    kind: Literal["differential_v2"] = "differential_v2"
    supports: ClassVar[Operations] = BY_TOKEN

    def sizes(self) -> tuple[int, int, int]:
        heads, kv_heads, head_dim = super().sizes()
        return 2 * heads, kv_heads, head_dim

    def outputs(self) -> tuple[int, int]:
        _, _, head_dim = self.sizes()
        return self.heads, head_dim

    def cost(self, d_model: int, context: int) -> PartCost:
        matrix = d_model * self.heads
        return super().cost(d_model, context) + matmul_cost(matrix, matrix)

    def build(self, site: LayerSite) -> MixerLayer:
        return DifferentialV2Layer(self, site.d_model)


class DifferentialV2Layer(AttentionLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: DifferentialV2, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.mixing = Linear(d_model, spec.heads, role="input")

    def _joined(self, heads: Tensor, x: Tensor) -> Tensor:
        """(B, 2H, T, d) → (B, H, T, d)."""
        first, second = heads[:, ::2], heads[:, 1::2]
        share: Tensor = self.mixing(x).sigmoid().transpose(1, 2)[..., None]  # (B, H, T, 1)
        return first - share * second

    def _scoring(self, q: Tensor, step: ForwardPass, k_places: Tensor) -> Scoring:
        """Scoring with the same bias for both maps of a head."""
        scoring = super()._scoring(q, step, k_places)
        if scoring.bias is None:
            return scoring
        return dataclasses.replace(scoring, bias=scoring.bias.repeat_interleave(2, dim=-3))
