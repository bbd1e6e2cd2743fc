"""Mixture of block attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.attend import attend
from zoo.attending.blocks import by_group, by_head
from zoo.attending.visible import Scoring, Visible
from zoo.caching.cache import LayerCache, TokenCache, kept_by
from zoo.compatibility.traits import Operation, Operations
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import MixerLayer
from zoo.mixers._block_heads import BlockHeads, TextSpans, attend_to_blocks, chosen, count_of_chosen, sum_of_chosen
from zoo.mixers._heads import split
from zoo.projections import project_all
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, Keys, LayerSite, PartCost, attention_cost


class MixtureOfBlockAttention(BlockHeads):
    """head = softmax(q K_Iᵀ/√d) V_I, with I the tokens of k blocks: the query's own block, up to the query, and the
    earlier blocks with the largest q · mean(K_i). Lu et al. 2025, arXiv:2502.13189.

    A text is cut into blocks of B tokens. Each query head selects on its own, also if heads share keys; positions
    rotate keys before the mean is taken. The selection has no gradient and no parameters, so that a layer can use full
    attention in one phase of training and MoBA in another. Keys and values are cached; means are recomputed from the
    keys. FLOPs count each query's scores of all blocks of the text, later blocks included.
    """

    examples: ClassVar[Examples] = ({"block": 4, "blocks": 2, "kv_heads": 2},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["moba"] = "moba"
    supports: ClassVar[Operations] = frozenset({Operation.SHARDING})
    scored: ClassVar[str] = "block means"
    block: Annotated[PositiveInt, Fact.SIZE] = 512
    """B: tokens of a block."""
    blocks: Annotated[PositiveInt, Fact.SIZE] = 3
    """k: blocks that a query attends to, its own included."""

    def build(self, site: LayerSite) -> MixerLayer:
        return MixtureOfBlockAttentionLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        heads, kv_heads, head_dim = self.sizes()
        matrix = 2 * d_model * (heads + kv_heads) * head_dim
        keys = Keys(sum_of_chosen(context, self.block, self.blocks) / context, context, context)
        attending = attention_cost(matrix, matrix, 4.0 * heads * head_dim, keys)
        return attending + PartCost.of(0, self._scoring_flops(context))

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """The selection of blocks has no backward pass."""
        return PartCost.of(0, -2 / 3 * self._scoring_flops(context))

    def decode_flops(self, d_model: int, context: int) -> float:
        heads, kv_heads, head_dim = self.sizes()
        projected = 4.0 * d_model * (heads + kv_heads) * head_dim
        attended = 4.0 * heads * head_dim * count_of_chosen(context, self.block, self.blocks)
        return projected + attended + self._scoring_flops(context)

    def _scoring_flops(self, context: int) -> float:
        """FLOPs of a query's block scores; zero if the text has at most `blocks` blocks."""
        count, (heads, _, head_dim) = -(-context // self.block), self.sizes()
        return 2.0 * heads * head_dim * count if count > self.blocks else 0.0

    def cache_elements(self, capacity: int) -> int:
        _, kv_heads, head_dim = self.sizes()
        return 2 * kv_heads * head_dim * capacity

    def cached(self) -> tuple[tuple[int, int], ...]:
        _, kv_heads, head_dim = self.sizes()
        return ((kv_heads, head_dim),) * 2


class MixtureOfBlockAttentionLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: MixtureOfBlockAttention, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.heads, self.kv_heads, head_dim = spec.sizes()
        self.q = Linear(d_model, self.heads * head_dim, role="input")
        self.k = Linear(d_model, self.kv_heads * head_dim, role="input")
        self.v = Linear(d_model, self.kv_heads * head_dim, role="input", values=True)
        self.o = Linear(self.heads * head_dim, d_model, role="output")
        self.position = spec.position.build(head_dim, self.heads)
        self.scale = float(head_dim**-0.5) * spec.position.score_factor

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return TokenCache.empty(batch, capacity, self.spec.cached(), self.o.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = project_all(x, self.q, self.k, self.v)
        q = self.position.rotate_queries(split(q, self.heads), step)
        k = self.position.rotate_keys(split(k, self.kv_heads), step)
        v, places = split(v, self.kv_heads), step.index
        tokens = kept_by(self, cache, TokenCache)
        if tokens is not None:
            (k, v), places = tokens.extend((k, v), step.index)
        heads = self._attend(q, k, v, places, TextSpans.of(step, cached=tokens is not None), step)
        return self.o(heads.transpose(1, 2).flatten(2))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, places: Tensor, text: TextSpans, step: ForwardPass) -> Tensor:
        """q: (B, H, T, d), k, v: (B, K, S, d) at places (S,) of the stream → (B, H, T, d)."""
        dropout = self.spec.dropout if self.training else 0.0
        visible, scoring = Visible.to(step, places), Scoring(self.scale, dropout=dropout, tap=step.tap)
        block, count = self.spec.block, -(-k.shape[2] // self.spec.block)
        if count <= self.spec.blocks:
            return attend(q, k, v, visible, scoring)
        of_text = text.own(places)  # (B or 1, S)
        with torch.no_grad():
            scores = in_float32(self._scores, q, block_means(k, of_text, block))
            # Mask of each query's k blocks: (B, H, T, N). Its own is always selected, later ones never; ties go to the
            # earlier block.
            number = torch.arange(scores.shape[-1], device=scores.device)
            own = (text.own(step.index) // block)[:, None, :, None]
            known = (number <= own).expand_as(scores)
            picked = chosen(scores.masked_fill(number == own, float("inf")), known, number, self.spec.blocks)
            blocks = torch.zeros_like(known).scatter(-1, picked, True) & known
        read = count_of_chosen(k.shape[2], block, self.spec.blocks)
        return attend_to_blocks(q, (k, v), blocks, of_text // block, read, visible, scoring)

    def _scores(self, q: Tensor, means: Tensor) -> Tensor:
        """Scores of blocks, q · means: (B, H, T, d), (B, K, N, d) → (B, H, T, N)."""
        return by_head(by_group(q, self.kv_heads) @ means.transpose(-1, -2), self.heads)


def block_means(k: Tensor, of_text: Tensor, block: int) -> Tensor:
    """k: (B, K, S, d), of_text: (B or 1, S), the index of each key in its row's text, negative for none → the mean key
    of each block of `block` tokens: (B, K, N, d). The mean of an incomplete block includes arbitrary keys."""
    size = -(-k.shape[2] // block) * block
    source = torch.arange(k.shape[2], device=k.device).expand_as(of_text)
    # Keys of padding and of empty slots go to an extra place at the end, which is cut off.
    place = torch.where(of_text < 0, size, of_text)
    index = source.new_zeros(of_text.shape[0], size + 1).scatter(1, place, source)[:, None, :size, None]
    ordered = k.take_along_dim(index, dim=2)
    means: Tensor = ordered.unflatten(2, (-1, block)).to(torch.promote_types(k.dtype, torch.float32)).mean(dim=3)
    return means
