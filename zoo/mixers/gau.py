"""Gated attention unit."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attending.visible import Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.kernels.precision import in_float32
from zoo.mixers import MixerLayer
from zoo.mixers._gated_unit import GatedUnit, GatedUnitLayer
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost, mean_keys


class GAU(GatedUnit):
    """out = W_o (U ⊙ A V), A = relu(QKᵀ/n + b)² where j ≤ i, U, V, Z = silu(W x), Q = γ_q ⊙ Z + β_q,
    K = γ_k ⊙ Z + β_k. Hua et al. 2022, arXiv:2202.10447.

    One head of s = `head_dim` features serves all e = `v_dim` features, and the gate U replaces an FFN: two such layers
    with `ffn: none` stand for one Transformer layer. b is the bias that `position` adds to scores. A has no softmax, so
    that only n keeps it small.
    """

    examples: ClassVar[Examples] = ({"head_dim": 6, "length": 8},)
    readings: ClassVar[int] = 2
    kind: Literal["gau"] = "gau"
    supports: ClassVar[Operations] = OF_MODULES
    length: Annotated[PositiveInt, MaxInTests(512)] = 512
    """n: divisor of scores, in the paper the length of the training texts. A constant here, so that a token's output
    does not depend on the tokens after it."""

    def build(self, site: LayerSite) -> MixerLayer:
        return GAULayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        matrix, per_key = self.matrices(d_model), 2.0 * (self.head_dim + self.value_features)
        keys = Keys(mean_keys(context), context, context)
        return attention_cost(matrix + self.vectors(), matrix, per_key, keys)

    def cache_elements(self, capacity: int) -> int:
        return (self.head_dim + self.value_features) * capacity

    def cached(self) -> tuple[tuple[int, int], ...]:
        return (1, self.head_dim), (1, self.value_features)


class GAULayer(GatedUnitLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: GAU, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.spec = spec

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k = self.queries_and_keys(x, step)
        v, places = F.silu(self.v(x))[:, None], step.index
        tokens = kept_by(self, cache, TokenCache)
        if tokens is not None:
            (k, v), places = tokens.extend((k, v), step.index)
        bias, seen = self.position.bias(step, places), Visible.to(step, places).mask()

        def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # A V: (B, 1, T, e)
            scores = q @ k.transpose(-1, -2) * (self.spec.position.score_factor / self.spec.length)
            if bias is not None:
                scores = scores + bias
            return F.relu(scores).square().masked_fill(~seen, 0.0) @ v

        return self._write(x, in_float32(mix, q, k, v).to(v.dtype)[:, 0])

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return TokenCache.empty(batch, capacity, self.spec.cached(), self.o.weight, dtype)

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        keys, values = kept
        return [self.position.moved(keys, by), values]
