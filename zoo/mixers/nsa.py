"""Native sparse attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.attend import attend, note
from zoo.attending.blocks import by_group, by_head, scores_computed
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.caching.parts import BlockCache
from zoo.compatibility.traits import Operation, Operations
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import MixerLayer
from zoo.mixers._block_heads import (
    FIRST,
    LOCAL,
    BlockHeads,
    Compressor,
    Strides,
    TextSpans,
    attend_to_blocks,
    count_of_chosen,
    importance,
    sum_of_chosen,
    taken,
)
from zoo.mixers._heads import split_by
from zoo.projections import project_all
from zoo.settings.axis import Examples, number
from zoo.settings.field_tags import HeadFeatures, MaxInTests
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost, mean_keys

BRANCHES = 3


class NativeSparseAttention(BlockHeads):
    """head = Σ_c g_c softmax(q K_cᵀ/√d) V_c over three branches c, g = σ(W_g x). Yuan et al. 2025, arXiv:2502.11089.

    compressed: one key φ(k_{is}, …, k_{is+l−1}) and one value for each block of l tokens that ends at or before the
    query, one block beginning every s tokens (eq. 7); zero for queries before the end of the first block.
    chosen: the tokens of n blocks of l′ tokens: the first, the query's own, the one before it, and the blocks with the
    largest Σ p_i over compressed blocks i, counted once per stride of s tokens that both share (eq. 9). p are the
    weights of the compressed branch, summed over heads that share keys, which select together (eq. 10). The selection
    has no gradient: φ learns through the compressed branch.
    near: the last w tokens, the query's own included.

    Each branch projects its own keys and values. The paper specifies neither φ nor how it meets positions. Here φ(x) =
    W₂ gelu(W₁ [x_0 + e_0; …; x_{l−1} + e_{l−1}]), one for keys and one for values, each for all heads, and positions
    are applied to keys before compression. W_g gives one gate per branch and head. Cached: keys and values of the
    chosen branch for all tokens, those of w and of l tokens for the other branches, and all compressed blocks.
    """

    examples: ClassVar[Examples] = (
        {"compress": 4, "stride": 2, "block": 4, "blocks": 3, "window": 3, "hidden": 7, "kv_heads": 2},
    )
    kind: Literal["nsa"] = "nsa"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    scored: ClassVar[str] = "compressed blocks"
    compress: PositiveInt = 32
    """l: tokens of a compressed block."""
    stride: PositiveInt = 16
    """s: tokens from one compressed block's beginning to the next; divides l and l′; the paper's d."""
    hidden: HeadFeatures | None = None
    """Features between W₁ and W₂; null for the features of a head."""
    block: PositiveInt = 64
    """l′: tokens of a selectable block; at least l."""
    blocks: Annotated[int, Field(ge=FIRST + LOCAL)] = 16
    """n: blocks that a query selects, the first and the local ones included."""
    window: Annotated[PositiveInt, MaxInTests(8)] = 512
    """w: last tokens that the branch *near* sees, the query's own included."""

    def resolve(self, d_model: int) -> Self:
        for name in ("compress", "block"):
            if getattr(self, name) % self.stride:
                raise SpecError(name, f"must be a multiple of stride ({self.stride}), not {getattr(self, name)}")
        if self.block < self.compress:
            raise SpecError("block", f"must be at least compress ({self.compress}), not {self.block}")
        found = super().resolve(d_model)
        return found.model_copy(update={"hidden": self.hidden or found.head_dim})

    @property
    def strides(self) -> Strides:
        return Strides(self.compress, self.stride)

    def build(self, site: LayerSite) -> MixerLayer:
        return NativeSparseAttentionLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        heads, kv_heads, head_dim = self.sizes()
        matrix = d_model * (2 * heads * head_dim + BRANCHES * (2 * kv_heads * head_dim + heads))
        both = 2 * (self.compress + 1) * head_dim * number(self.hidden)  # matrices of φ, for keys and for values
        parameters = matrix + both + 2 * self.compress * head_dim
        compressed = self.strides.complete(context)
        chosen = sum_of_chosen(context, self.block, self.blocks) / context
        keys = Keys(
            self.strides.pairs(context) / context + chosen + mean_keys(context, self.window),
            compressed + 2 * context,
            compressed + context + scores_computed(context, self.window) / context,
        )
        attending = attention_cost(parameters, matrix, 4.0 * heads * head_dim, keys)
        return attending + PartCost.of(0, 2.0 * both * kv_heads * compressed / context)

    def cache_elements(self, capacity: int) -> int:
        _, kv_heads, head_dim = self.sizes()
        tokens = capacity + min(capacity, self.window) + min(capacity, self.compress)
        return 2 * kv_heads * head_dim * (tokens + self.strides.complete(capacity))


class NativeSparseAttentionLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: NativeSparseAttention, d_model: int) -> None:
        super().__init__()
        self.spec, self.strides = spec, spec.strides
        self.heads, self.kv_heads, self.head_dim = spec.sizes()
        of_branches = BRANCHES * self.kv_heads * self.head_dim
        self.q = Linear(d_model, self.heads * self.head_dim, role="input")
        self.k = Linear(d_model, of_branches, role="input")
        self.v = Linear(d_model, of_branches, role="input", values=True)
        self.o = Linear(self.heads * self.head_dim, d_model, role="output")
        self.gates = Linear(d_model, BRANCHES * self.heads, role="input")
        sizes = spec.compress, self.head_dim, number(spec.hidden)
        self.compress_k, self.compress_v = Compressor(*sizes), Compressor(*sizes)
        self.position = spec.position.build(self.head_dim, self.heads)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        kept = kept_by(self, cache, BlockCache)
        q, k, v = (split_by(part, self.head_dim) for part in project_all(x, self.q, self.k, self.v))
        q, k = self.position.rotate_queries(q, step), self.position.rotate_keys(k, step)
        pairs = list(zip(k.chunk(BRANCHES, dim=1), v.chunk(BRANCHES, dim=1), strict=True))
        text = TextSpans.of(step, cached=kept is not None)
        compressed, weights = self.compressed_branch(q, pairs[0], text, step, kept)
        chosen = self.chosen_branch(q, pairs[1], weights, text, step, kept)
        near = self.near_branch(q, pairs[2], step, kept)
        gates = self.gates(x).sigmoid().unflatten(-1, (BRANCHES, -1, 1)).transpose(1, 3)  # (B, H, 3, T, 1)
        heads = (gates * torch.stack((compressed, chosen, near), dim=2)).sum(dim=2)
        return self.o(heads.transpose(1, 2).flatten(2))

    def compressed_branch(
        self, q: Tensor, new: tuple[Tensor, Tensor], text: TextSpans, step: ForwardPass, kept: BlockCache | None
    ) -> tuple[Tensor, Tensor]:
        """Compressed branch: (B, H, T, d), and its attention weights on blocks, (B, H, T, N)."""
        tokens: list[Tensor] = list(new)
        if kept is not None:
            tokens, places = kept.unread.extend(new, step.index)
            if places is not step.index:
                order = places.argsort()  # a rolling buffer may hold tokens in any order
                tokens = [x[:, :, order] for x in tokens]
        compressors = self.compress_k, self.compress_v
        blocks = [phi(text.cut(x, self.strides)) for phi, x in zip(compressors, tokens, strict=True)]
        count = self.strides.complete(text.end)
        if kept is not None:
            blocks = kept.add(blocks, text.before(self.strides), count)
        seen = text.sees(step.index, count, self.strides)
        note("plain", torch.is_grad_enabled() and q.requires_grad)
        weights = in_float32(lambda q, k: self._weights(q, k, seen), q, blocks[0])
        dropped = F.dropout(weights, self._dropout)
        heads = in_float32(lambda p, v: by_head(by_group(p, self.kv_heads) @ v, self.heads), dropped, blocks[1])
        return heads.to(q.dtype), weights

    def _weights(self, q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
        """Attention weights; zero for a query that sees no block."""
        scores = by_head(by_group(q, self.kv_heads) @ k.transpose(-1, -2), self.heads) * self._scale
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(dim=-1) * seen

    def chosen_branch(
        self,
        q: Tensor,
        new: tuple[Tensor, Tensor],
        weights: Tensor,
        text: TextSpans,
        step: ForwardPass,
        kept: BlockCache | None,
    ) -> Tensor:
        """Chosen branch: (B, H, T, d). weights: (B, H, T, N), of the compressed branch."""
        (k, v), places = (list(new), step.index) if kept is None else kept.tokens.extend(new, step.index)
        visible, scoring = Visible.to(step, places), Scoring(self._scale, dropout=self._dropout, tap=step.tap)
        block, count = self.spec.block, -(-text.end // self.spec.block)
        if count <= self.spec.blocks:
            return attend(q, k, v, visible, scoring)
        scores = importance(weights.detach(), self.kv_heads, self.strides, block, count)
        blocks = taken(scores, text.own(step.index) // block, self.spec.blocks)
        read = count_of_chosen(text.end, block, self.spec.blocks)
        of_key = text.own(places) // block
        return attend_to_blocks(q, (k, v), blocks, of_key, read, visible, scoring)

    def near_branch(self, q: Tensor, new: tuple[Tensor, Tensor], step: ForwardPass, kept: BlockCache | None) -> Tensor:
        """Near branch: (B, H, T, d)."""
        (k, v), places = (list(new), step.index) if kept is None else kept.near.extend(new, step.index)
        visible = Visible.to(step, places, self.spec.window)
        return attend(q, k, v, visible, Scoring(self._scale, dropout=self._dropout))

    @property
    def _scale(self) -> float:
        return float(self.head_dim**-0.5) * self.spec.position.score_factor

    @property
    def _dropout(self) -> float:
        return self.spec.dropout if self.training else 0.0

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        shapes, like = [(self.kv_heads, self.head_dim)] * 2, self.k.weight

        def of(slots: int) -> TokenCache:
            kept = min(capacity, slots)
            return TokenCache.empty(batch, kept, shapes, like, dtype, rolling=slots <= capacity)

        size = batch, self.kv_heads, self.strides.complete(capacity), self.head_dim
        blocks = [torch.zeros(size, dtype=dtype, device=like.device) for _ in shapes]
        tokens = TokenCache.empty(batch, capacity, shapes, like, dtype)
        return BlockCache(tokens, of(self.spec.window), of(self.spec.compress), blocks)
