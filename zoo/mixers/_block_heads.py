"""Selection of the keys that queries attend to: common code of mixers with selected blocks of keys, and the indexer, a
small scorer that selects keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.errors import SpecError, under
from zoo.init import Linear
from zoo.kernels.precision import in_float32
from zoo.mixers import Mixer
from zoo.mixers._heads import check_kv_heads, default_head_dim
from zoo.norms.layernorm import LayerNorm
from zoo.positions import Position
from zoo.positions.rope import RoPE
from zoo.settings.axis import Choice, number
from zoo.settings.field_tags import Dropout, Fact, HeadFeatures, Heads
from zoo.site import ForwardPass

FIRST, LOCAL = 1, 2
"""Numbers of blocks that every query selects: the text's first; its own and the one before."""


@dataclass(frozen=True)
class Strides:
    """Blocks of `length` tokens, one beginning every `stride` tokens."""

    length: int
    stride: int

    def complete(self, tokens: int) -> int:
        """Number of blocks that end within the first `tokens` tokens."""
        return max(0, (tokens - self.length) // self.stride + 1)

    def complete_in_rows(self, tokens: Tensor) -> Tensor:
        """`complete` for each element of `tokens`."""
        return ((tokens - self.length) // self.stride + 1).clamp(min=0)

    def pairs(self, tokens: int) -> int:
        """Σ_t `complete(t)` over t = 1 … tokens."""
        full, rest = divmod(max(0, tokens - self.length + 1), self.stride)
        return self.stride * full * (full + 1) // 2 + rest * (full + 1)


@dataclass(frozen=True)
class TextSpans:
    """Position of a pass in each row's text. Blocks are counted from the beginning of the text.

    start, end: number of known (cached or new) tokens before the pass, and up to its end. begin: index of the first
    known token in the stream. pads: (B, 1), number of padding tokens before each row's text; None without padding.
    """

    start: int
    end: int
    begin: int
    pads: Tensor | None

    @staticmethod
    def of(step: ForwardPass, cached: bool) -> TextSpans:
        begin = 0 if cached else step.start
        pads = None if step.left_pad is None else (step.left_pad - begin).clamp(min=0)[:, None]
        return TextSpans(step.start - begin, step.end - begin, begin, pads)

    def own(self, places: Tensor) -> Tensor:
        """Indices in the stream, (S,) → indices in each row's text, (B or 1, S), negative on padding."""
        places = (places - self.begin)[None]
        return places if self.pads is None else places - self.pads

    def before(self, strides: Strides) -> int | Tensor:
        """Number of blocks completed before the pass; (B, 1) with padding."""
        if self.pads is None:
            return strides.complete(self.start)
        return strides.complete_in_rows(self.start - self.pads)

    def added(self, strides: Strides) -> int:
        """Maximum number of blocks that the pass completes in a row."""
        if self.pads is None:
            return strides.complete(self.end) - strides.complete(self.start)
        return min(strides.complete(self.end), -(-(self.end - self.start) // strides.stride))

    def cut(self, x: Tensor, strides: Strides) -> Tensor:
        """x: (B, K, S, f), the last S tokens in order → the blocks that the pass completes: (B, K, M, l, f). If a row
        completes fewer than M, its last blocks hold arbitrary tokens."""
        count, device = self.added(strides), x.device
        number = torch.atleast_2d(self.before(strides) + torch.arange(count, device=device))  # (B or 1, M)
        token = (
            number[..., None] * strides.stride + torch.arange(strides.length, device=device) - (self.end - x.shape[2])
        )
        if self.pads is not None:
            token = token + self.pads[..., None]
        index = token.clamp(0, x.shape[2] - 1).flatten(1)[:, None, :, None]
        blocks: Tensor = x.take_along_dim(index, dim=2).unflatten(2, (count, strides.length))
        return blocks

    def sees(self, queries: Tensor, count: int, strides: Strides) -> Tensor:
        """Whether each of `count` blocks ends at or before each query: (B or 1, 1, T, count)."""
        complete = strides.complete_in_rows(self.own(queries) + 1)
        return (torch.arange(count, device=queries.device) < complete[..., None])[:, None]


class Compressor(nn.Module):
    """φ: a block of l keys or values (…, l, d) → one (…, d): W₂ gelu(W₁ [x_0 + e_0; …; x_{l−1} + e_{l−1}])."""

    def __init__(self, length: int, features: int, hidden: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(length, features))
        self.roles = {"places": "bias"}
        self.up = Linear(length * features, hidden, role="input")
        self.down = Linear(hidden, features, role="input")

    def forward(self, blocks: Tensor) -> Tensor:
        return self.down(F.gelu(self.up((blocks + self.places).flatten(-2))))


def importance(weights: Tensor, groups: int, strides: Strides, block: int, count: int) -> Tensor:
    """Scores of `count` selectable blocks of `block` tokens, (B, K, T, `count`), from the attention weights of the
    compressed blocks, (B, H, T, N). A compressed block adds its weight once for each of its strides that lies in the
    selectable block; weights are summed over the heads of a group (NSA, arXiv:2502.11089, eq. 9 and 10)."""
    together = weights.unflatten(1, (groups, -1)).sum(dim=2)  # (10): (B, K, T, N)
    # (9): a cell is one stride of tokens, which up to l/s compressed blocks share.
    overlap, per_block = strides.length // strides.stride, block // strides.stride
    cells = count * per_block
    padded = F.pad(together, (overlap - 1, cells - weights.shape[-1]))
    summed: Tensor = padded.unfold(-1, overlap, 1).sum(dim=-1).unflatten(-1, (count, per_block)).sum(dim=-1)
    return summed


def taken(scores: Tensor, own: Tensor, count: int) -> Tensor:
    """scores: (B, K, T, N), own: (B or 1, T), each query's own block → mask of the `count` blocks that a query selects:
    (B, K, T, N). The first and the local blocks are always selected, later ones never; ties go to the earlier block."""
    number, own = torch.arange(scores.shape[-1], device=scores.device), own[:, None, :, None]
    known = (number <= own).expand_as(scores)
    always = (number < FIRST) | (number > own - LOCAL)
    picked = chosen(scores.masked_fill(always, float("inf")), known, number, count)
    return torch.zeros_like(known).scatter(-1, picked, True) & known


class BlockHeads(Mixer):
    """Base of mixers whose query heads select blocks of keys."""

    scored: ClassVar[str]
    """Name, for messages, of the things that queries score, which have no position."""

    heads: Heads = 4
    """H: number of query heads; a head has d_model / heads features unless `head_dim` is set."""
    kv_heads: Annotated[PositiveInt | None, Fact.SHARED_HEADS] = None
    """Heads of keys and values; null for as many as `heads`."""
    head_dim: HeadFeatures | None = None
    """Features per head; null for d_model / heads."""
    position: Annotated[Position, Choice("zoo.positions")] = RoPE()
    """Position encoding of queries and keys; it cannot add to scores."""
    dropout: Dropout = 0.0
    """Dropout on attention weights, in training."""

    def resolve(self, d_model: int) -> Self:
        kv_heads = self.kv_heads or self.heads
        check_kv_heads(self.heads, kv_heads)
        head_dim = self.head_dim or default_head_dim(self.heads, d_model)
        if self.position.adds_to_scores:
            reason = f"{self.position.kind} cannot add to {self.kind}'s scores of {self.scored}, which have no position"
            raise SpecError("position", reason)
        with under("position"):
            self.position.check(head_dim)
        return self.model_copy(update={"kv_heads": kv_heads, "head_dim": head_dim})

    def sizes(self) -> tuple[int, int, int]:
        """(H, K, d) of a resolved spec."""
        return self.heads, number(self.kv_heads), number(self.head_dim)


def attend_to_blocks(
    q: Tensor,
    kept: tuple[Tensor, Tensor],
    blocks: Tensor,
    of_key: Tensor,
    read: int,
    visible: Visible,
    scoring: Scoring,
) -> Tensor:
    """Attention to the keys of selected blocks: (B, H, T, d).

    q: (B, H, T, d), kept: keys and values (B, K, S, d). blocks: (B, G, T, N), the blocks that each query's head, or
    group of heads, selected. of_key: (B or 1, S), the block of each key, negative on padding. read: number of keys that
    the last token of the text sees.
    """
    (k, v), of_key = kept, of_key[:, None, None]
    # Padding sees padding, so that no row of scores is fully masked.
    mask = blocks.take_along_dim(of_key.clamp(0, blocks.shape[-1] - 1), dim=-1) | (of_key < 0)  # (B, G, T, S)
    if visible.everything:
        # A single query of unpadded text: gather the selected keys, so that the others are not read.
        k, v = (x.repeat_interleave(mask.shape[1] // x.shape[1], dim=1) for x in (k, v))
        order = mask.int().argsort(dim=-1, descending=True, stable=True)[..., :read].transpose(-1, -2)
        some = Visible(visible.queries, visible.queries.expand(read))
        return attend(q, k.take_along_dim(order, 2), v.take_along_dim(order, 2), some, scoring)
    mask = mask.repeat_interleave(q.shape[1] // mask.shape[1], dim=1)
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return attend(q, k, v, visible, replace(scoring, bias=bias))


def count_of_chosen(tokens: int, block: int, blocks: int) -> int:
    """Number of tokens that the last of `tokens` tokens attends to in `blocks` blocks, its own included."""
    own = (tokens - 1) % block + 1
    return min(tokens, (blocks - 1) * block + own)


def sum_of_chosen(tokens: int, block: int, blocks: int) -> int:
    """Σ_t `count_of_chosen(t)` over t = 1 … tokens."""
    all_of_them = min(tokens, blocks * block)
    full, rest = divmod(tokens - all_of_them, block)
    own = full * block * (block + 1) // 2 + rest * (rest + 1) // 2
    return all_of_them * (all_of_them + 1) // 2 + (tokens - all_of_them) * (blocks - 1) * block + own


KEY_NORM = LayerNorm(eps=1e-6)


class Indexer(nn.Module):
    """I_ts = Σ_j w_tj · ReLU(q_tj · k_s), j over the indexer's heads. DeepSeek-AI 2025 (DeepSeek-V3.2),
    arXiv:2512.02556.

    q = rope(W_q c): (H_I, d_I), with c the input of the layer's query projection, k = rope(norm(W_k x)): (d_I), one for
    all heads, and w = W_w x: (H_I). Positions rotate the first ρ features of both. Scores have the factors 1/√d_I and
    1/√H_I of the released model, which do not change the selection. Inputs are detached: the indexer learns only from
    its own loss, and that loss trains nothing else.
    """

    def __init__(self, read: int, d_model: int, heads: int, features: int, position: Position, turned: int) -> None:
        super().__init__()
        self.heads, self.turned = heads, turned
        self.q = Linear(read, heads * features, role="input")
        self.k = Linear(d_model, features, role="input")
        self.k_norm = KEY_NORM.build(features)
        self.weights = Linear(d_model, heads, role="input")
        self.position = position.build(turned, heads)
        self.scale = (features * heads) ** -0.5

    def keys(self, x: Tensor, step: ForwardPass) -> Tensor:
        """(B, T, D) → the keys to cache: (B, 1, T, d_I)."""
        first, rest = self._parts(self.k_norm(self.k(x.detach()))[:, None])
        return torch.cat((self.position.rotate_keys(first, step), rest), dim=-1)

    def scores(self, read: Tensor, x: Tensor, keys: Tensor, step: ForwardPass) -> Tensor:
        """read: (B, T, …), x: (B, T, D), keys: (B, 1, S, d_I) → I: (B, T, S), in float32 or wider."""
        first, rest = self._parts(self.q(read.detach()).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        q = torch.cat((self.position.rotate_queries(first, step), rest), dim=-1)
        return in_float32(self._scores, q, keys, self.weights(x.detach()))

    def moved(self, keys: Tensor, by: int) -> Tensor:
        """Cached keys as they would be at positions shifted by `by`."""
        first, rest = self._parts(keys)
        return torch.cat((self.position.moved(first, by), rest), dim=-1)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., : self.turned], x[..., self.turned :]

    def _scores(self, q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        hits = F.relu(q @ keys.transpose(-1, -2)) * self.scale  # (B, H_I, T, S)
        scores: Tensor = weights[..., None, :] @ hits.transpose(1, 2)
        return scores.squeeze(-2)


def chosen(scores: Tensor, seen: Tensor, places: Tensor, count: int) -> Tensor:
    """scores: (B, …, T, S), seen: the same or (T, S), places: (S,) → indices of the `count` largest visible scores:
    (B, …, T, min(count, S)). If fewer keys are visible, indices of hidden keys follow.

    Ties, which ReLU makes frequent, go to the earlier place, so that the order of keys in a cache does not matter.
    Without positions, the same token at two places has equal scores up to rounding, which depends on the shape of the
    product; the cast to float32 removes that difference from float64 scores.
    """
    order = places.argsort()
    ranked = (
        scores.detach().float().masked_fill(~seen, float("-inf"))[..., order].sort(dim=-1, descending=True, stable=True)
    )
    return order[ranked.indices[..., :count]]


def imitation_loss(scores: Tensor, weights: Tensor, taken: Tensor) -> Tensor:
    """Mean over tokens of KL(p ‖ softmax(I)) over the selected keys, p being attention weights averaged over heads.

    scores: (B, T, S), weights: (B, H, T, S), detached here, taken: (B, T, S), true for selected keys.
    """
    target = weights.detach().mean(dim=1)
    log_guess = scores.masked_fill(~taken, float("-inf")).log_softmax(dim=-1).masked_fill(~taken, 0.0)
    divergences: Tensor = torch.special.xlogy(target, target) - target * log_guess
    return divergences.sum(dim=-1).mean()
