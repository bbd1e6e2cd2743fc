"""Multi-token attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attend import note
from zoo.attending.blocks import by_group, by_head
from zoo.attending.plain import masked, with_sinks
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.caching.states import StateCache, TokenStateCache
from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError, UnsupportedError
from zoo.kernels.precision import in_float32
from zoo.mixers import Mixer, MixerLayer
from zoo.mixers._multi_head import MultiHead
from zoo.mixers.attention import AttentionLayer
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests
from zoo.site import ForwardPass, LayerSite, PartCost

QUERIES = "queries"
"""Cache name of the last queries."""


class MultiTokenAttention(MultiHead):
    """A = softmax(mask_−∞(conv_θ(mask_0(QKᵀ/√d)))), head = A V. Golovneva et al. 2025, arXiv:2504.00927, eq. 5.

    conv_θ sums over c_q queries up to the current one and c_k keys around each key, separately per head:
    Σ θ_ab s_{i−a, j−b}, a = 0 … c_q − 1, b = 1 − ⌈c_k/2⌉ … ⌊c_k/2⌋; mask_0 sets scores of keys after their query to 0.
    With `head_group` = c_h the weights of c_h neighbouring heads are mixed after the softmax (eq. 7):
    A_h ← Σ_g w_hg A_g. θ and w start as the identity. Position biases, the softcap and sinks come after the
    convolution. The paper also norms and gates the heads' outputs: `gate: head` is the gate, the norm is left out.

    Decoding a token scores the last c_q − 1 queries again, which are cached; a window caches c_q − 1 more keys.
    """

    examples: ClassVar[Examples] = ({"query_width": 3, "key_width": 4}, {"query_width": 2, "head_group": 2})
    kind: Literal["multi_token"] = "multi_token"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    query_width: Annotated[PositiveInt, MaxInTests(6)] = 6
    """c_q: queries that the convolution of scores sums over, up to the current one."""
    key_width: Annotated[PositiveInt, MaxInTests(11)] = 11
    """c_k: keys that the convolution of scores sums over, around each key."""
    head_group: PositiveInt | None = None
    """c_h: neighbouring heads whose weights are mixed; null for no mixing."""

    def resolve(self, d_model: int) -> Self:
        spec = super().resolve(d_model)
        for name in ("reuse_kv", "sparsity"):
            if getattr(self, name):
                raise SpecError(name, "cannot be combined with multi_token, which needs consecutive keys of its own")
        if self.head_group is not None and self.heads % self.head_group:
            raise SpecError("head_group", f"groups of {self.head_group} do not divide {self.heads} heads")
        return spec

    def build(self, site: LayerSite) -> MixerLayer:
        return MultiTokenLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        weights = self.heads * (self.query_width * self.key_width + (self.head_group or 0))
        return super().cost(d_model, context) + PartCost(weights)

    def decode_flops(self, d_model: int, context: int) -> float:
        keys, queries = self.slots(context), min(self.query_width, context)
        heads, _, head_dim = self.sizes()
        again = (queries - 1) * 2.0 * heads * head_dim
        return self.cost(d_model, 1).flops + (keys - 1) * self._flops_per_key() + keys * again

    @property
    def _plain_scores(self) -> bool:
        return False

    def _flops_per_key(self) -> float:
        mixing = self.query_width * self.key_width + (self.head_group or 0)
        return super()._flops_per_key() + 2.0 * self.heads * mixing

    def slots(self, capacity: int) -> int:
        return capacity if self.window is None else min(capacity, self.window + self.query_width - 1)

    def cache_elements(self, capacity: int) -> int:
        heads, _, head_dim = self.sizes()
        return super().cache_elements(capacity) + heads * (self.query_width - 1) * head_dim

    def check_ahead(self) -> None:
        """Raise SpecError: causal only, as published."""
        Mixer.check_ahead(self)


class MultiTokenLayer(AttentionLayer):
    """x: (B, T, D) → (B, T, D)."""

    spec: MultiTokenAttention

    def __init__(self, spec: MultiTokenAttention, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.conv_scores = ScoreConvolution(self.heads, spec.query_width, spec.key_width)
        self.mix = HeadMixing(self.heads, spec.head_group) if spec.head_group else nn.Identity()

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v, places, _ = self._read(x, step, cache)
        queries = self._with_older(q, cache)
        if places is not step.index:
            # A rolling buffer may hold keys in any order, but the convolution needs them in order.
            places, order = places.sort()
            k, v = k[:, :, order], v[:, :, order]
        visible, scoring = Visible.to(step, places, self.spec.window), self._scoring(q, step, places)
        note("plain", torch.is_grad_enabled() and q.requires_grad)
        weights = in_float32(lambda q, k: self._weights(q, k, visible, scoring), queries, k)
        step.tap("mixer.weights", lambda: weights)
        mixed = by_group(F.dropout(weights, scoring.dropout).to(v.dtype), v.shape[1]) @ v
        heads = by_head(mixed, self.heads).transpose(1, 2).flatten(2)
        return self.o(heads if self.gate is None else self.gate(heads, x))

    def _with_older(self, q: Tensor, cache: LayerCache | None) -> Tensor:
        """Queries preceded by the last n = c_q − 1 cached ones, with whose scores theirs are mixed: (B, H, n + T, d);
        n = 0 in the first pass."""
        states = kept_by(self, cache, StateCache)
        if states is None:
            return q
        before, last = states.read(QUERIES, q.dtype), self.spec.query_width - 1
        queries = q if before is None else torch.cat((before, q), dim=2)
        kept = F.pad(queries, (0, 0, max(0, last - queries.shape[2]), 0))
        states.write(QUERIES, kept[:, :, kept.shape[2] - last :])
        return queries

    def _weights(self, queries: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """queries: (B, H, n + T, d), the last T of them of this pass → (B, H, T, S)."""
        scores = by_head(by_group(queries, k.shape[1]) @ k.transpose(-1, -2), self.heads) * scoring.scale
        length = visible.queries.shape[0]
        places = visible.queries[:1] + torch.arange(length - queries.shape[2], length, device=k.device)
        known = replace(visible, queries=places).mask()
        if visible.left_pad is not None:
            known = known & (places[:, None] >= visible.left_pad[:, None, None, None])
        scores = self.conv_scores(scores.masked_fill(~known, 0.0), length)
        scores = with_sinks(masked(scores, visible, scoring), scoring)
        mixed: Tensor = self.mix(scores.softmax(dim=-1)[..., : k.shape[2]])
        return mixed

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        plain = super().new_cache(batch, capacity, dtype)
        shape = {QUERIES: (self.heads, self.spec.query_width - 1, self.head_dim)}
        states = StateCache.zeros(batch, shape, self.k.weight, dtype)
        if isinstance(plain, TokenStateCache):
            return TokenStateCache(plain.tokens, StateCache({**plain.states, **states.states}))
        assert isinstance(plain, TokenCache)
        return TokenStateCache(plain, states)

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        raise UnsupportedError("mixer", "multi_token also caches queries, which would have to be shifted")


class ScoreConvolution(nn.Module):
    """scores: (B, H, n + T, S) → convolved scores of the last T queries, zero-padded: (B, H, T, S)."""

    roles: ClassVar = {"weight": "gain"}

    def __init__(self, heads: int, queries: int, keys: int) -> None:
        super().__init__()
        # In the layout of F.conv2d: the last row is for the current query, column ⌊c_k/2⌋ for the current key.
        self.weight = nn.Parameter(torch.zeros(heads, 1, queries, keys))
        identity = torch.zeros(heads, 1, queries, keys)
        identity[..., -1, keys // 2] = 1.0
        self.initial = {"weight": identity}

    def forward(self, scores: Tensor, length: int) -> Tensor:
        heads, _, queries, keys = self.weight.shape
        missing = queries - 1 - (scores.shape[2] - length)
        padded = F.pad(scores, (keys // 2, (keys - 1) // 2, missing, 0))
        return F.conv2d(padded, self.weight.to(scores.dtype), groups=heads)


class HeadMixing(nn.Module):
    """weights: (B, H, T, S) → the same shape, mixed within each group of c_h neighbouring heads."""

    roles: ClassVar = {"weight": "gain"}

    def __init__(self, heads: int, group: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads // group, group, group))
        self.initial = {"weight": torch.eye(group).expand(heads // group, group, group)}

    def forward(self, weights: Tensor) -> Tensor:
        group = self.weight.shape[-1]
        grouped = weights.unflatten(1, (-1, group))
        mixed = self.weight.to(weights.dtype) @ grouped.flatten(3)
        out: Tensor = mixed.unflatten(3, weights.shape[2:]).flatten(1, 2)
        return out
