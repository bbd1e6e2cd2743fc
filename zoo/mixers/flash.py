"""FLASH: gated attention units within chunks, and linear attention to earlier chunks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.errors import SpecError
from zoo.mixers import MixerLayer
from zoo.mixers._gated_unit import GatedUnit, GatedUnitLayer
from zoo.mixers._layout import Layout
from zoo.mixers._scan import ScanChunks
from zoo.settings.axis import Examples
from zoo.site import ForwardPass, LayerSite, PartCost

KEYS, VALUES, BEFORE, ALL = "keys", "values", "before", "all"
"""Cache names: keys and values of the last chunk, Σ k vᵀ over the chunks before it, and Σ k vᵀ over all tokens."""

State = dict[str, Tensor]


class FLASH(GatedUnit):
    """out = W_o (U ⊙ (V_chunk + V_before)), the mixed chunk attention of Hua et al. 2022, arXiv:2202.10447. Not the
    kernel FlashAttention.

    V_chunk = relu(QKᵀ/C)² V over tokens j ≤ i of the token's own chunk of C tokens, as in the gated attention unit;
    V_before = Q′ (K′ᵀV)/m over the m tokens of all chunks before it, without a softmax. Q, K, Q′ and K′ are scaled and
    offset copies of one Z. The division by m, which the paper omits for the causal sum, keeps V_before from growing
    with the text. Chunks are counted from the beginning of the text. Decoding caches C (s + e) + 2 s e numbers for any
    context.
    """

    examples: ClassVar[Examples] = ({"head_dim": 6, "chunk": 8}, {"head_dim": 4, "chunk": 5})
    readings: ClassVar[int] = 4
    counts_places: ClassVar[bool] = True
    kind: Literal["flash"] = "flash"
    supports: ClassVar[Operations] = OF_MODULES
    chunk: PositiveInt = 256
    """C: tokens per chunk; changes results, unlike the `chunk` of a scan."""

    def resolve(self, d_model: int) -> Self:
        spec = super().resolve(d_model)
        if self.position.adds_to_scores:
            reason = f"{self.position.kind} adds to attention scores, which flash has only within a chunk"
            raise SpecError("position", reason)
        return spec

    def build(self, site: LayerSite) -> MixerLayer:
        return FLASHLayer(self, site.d_model)

    @property
    def state(self) -> int:
        """Number of elements of Σ k vᵀ."""
        return self.head_dim * self.value_features

    def cost(self, d_model: int, context: int) -> PartCost:
        chunks = ScanChunks(context, min(self.chunk, context))
        # All chunks but the last are added to Σ k vᵀ, and all tokens but those of the first chunk read it. Executed
        # FLOPs also count the last chunk's padding.
        added = 2.0 * self.state * (chunks.count - 1) * chunks.width
        read, read_padded = 2.0 * self.state * (context - chunks.width), added
        per_pair = 2.0 * (self.head_dim + self.value_features)
        matrix = self.matrices(d_model)
        needed = 2.0 * matrix + (per_pair * chunks.pairs + added + read) / context
        square = 2.0 * matrix + (per_pair * chunks.count * chunks.width**2 + added + read_padded) / context
        return PartCost(matrix + self.vectors(), needed, square, square)

    def state_flops(self, d_model: int, context: int) -> float:
        """FLOPs of adding the last chunk to Σ k vᵀ."""
        return 2.0 * self.state * min(self.chunk, context)

    def decode_flops(self, d_model: int, context: int) -> float:
        """FLOPs of decoding one token, which reads all slots of its chunk, filled or not."""
        if context == 1:
            return self.cost(d_model, 1).flops + self.state_flops(d_model, 1)
        per_slot = 2.0 * (self.head_dim + self.value_features)
        return 2.0 * self.matrices(d_model) + per_slot * self.chunk + 4.0 * self.state

    def states(self) -> Mapping[str, tuple[int, int]]:
        """Shapes of a text's cached tensors, by name."""
        total = (self.head_dim, self.value_features)
        slots = {KEYS: (self.chunk, self.head_dim), VALUES: (self.chunk, self.value_features)}
        return {**slots, BEFORE: total, ALL: total}

    def cache_elements(self, capacity: int) -> int:
        return sum(rows * columns for rows, columns in self.states().values())


class Tokens(NamedTuple):
    """Projections of the new tokens: (B, T, …) each."""

    q: Tensor
    k: Tensor
    q_before: Tensor
    k_before: Tensor
    v: Tensor


class FLASHLayer(GatedUnitLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: FLASH, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.spec = spec

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return StateCache.zeros(batch, self.spec.states(), self.o.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        kind = torch.promote_types(x.dtype, torch.float32)
        readings = [reading[:, 0] for reading in self.queries_and_keys(x, step)]
        tokens = Tokens(*(each.to(kind) for each in (*readings, on_text(F.silu(self.v(x)), step))))
        states = kept_by(self, cache, StateCache)
        known: State | None = None
        if states is not None:
            kept = {name: states.read(name, kind) for name in (KEYS, VALUES, BEFORE, ALL)}
            known = {name: value for name, value in kept.items() if value is not None} or None
        with torch.autocast(x.device.type, enabled=False):
            if known is not None and x.shape[1] == 1:
                read, after = self._one(tokens, step, known)
            else:
                layout = Layout.of(step, self.spec.chunk, continued=known is not None)
                read, after = self._chunked(tokens, layout, known, keep=states is not None)
        if states is not None:
            for name, value in after.items():
                states.write(name, value)
        return self._write(x, read.to(x.dtype))

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        scale = self.spec.position.score_factor / self.spec.chunk
        return F.relu(q @ k.transpose(-1, -2) * scale).square()

    def _one(self, new: Tokens, step: ForwardPass, known: State) -> tuple[Tensor, State]:
        """One token after cached ones: attention within its partly filled chunk, and the sum over the full chunks."""
        chunk, place = self.spec.chunk, step.order.reshape(-1, 1, 1)
        slot = torch.arange(chunk, device=place.device)[:, None]
        here, later = slot == place % chunk, slot > place % chunk
        keys, values = torch.where(here, new.k, known[KEYS]), torch.where(here, new.v, known[VALUES])
        before = torch.where(place % chunk == 0, known[ALL], known[BEFORE])
        weights = self._weights(new.q, keys).masked_fill(later.transpose(-1, -2), 0.0)
        read = weights @ values + new.q_before / (place // chunk * chunk).clamp(min=1) @ before
        total = known[ALL] + new.k_before.transpose(-1, -2) @ new.v
        return read, {KEYS: keys, VALUES: values, BEFORE: before, ALL: total}

    def _chunked(self, new: Tokens, layout: Layout, known: State | None, keep: bool) -> tuple[Tensor, State]:
        """All chunks at once, except the running sums over chunks."""
        kept = (None, None) if known is None else (known[KEYS], known[VALUES])
        k, v = (layout.cut(x, before) for x, before in zip((new.k, new.v), kept, strict=True))
        q, q_before, k_before = (layout.cut(x) for x in (new.q, new.q_before, new.k_before))
        read, sums = self._weights(q, k).tril() @ v, _sums(k_before, layout.cut(new.v), layout, known, keep)
        # The first chunk of a text has no chunks before it.
        first, count = int(known is None), layout.chunks.count
        if first < count:
            share = q_before[:, first:] / layout.before(q).clamp(min=1)[:, first:]
            read = read + F.pad(share @ torch.stack(sums[first:count], dim=1), (0, 0, 0, 0, first, 0))
        if not keep:
            return layout.join(read), {}
        rest = (0, 0, 0, self.spec.chunk - layout.chunks.width)
        last = {KEYS: F.pad(layout.last(k), rest), VALUES: F.pad(layout.last(v), rest)}
        return layout.join(read), {**last, BEFORE: layout.last(torch.stack(sums[:count], dim=1)), ALL: sums[count]}


def _sums(k: Tensor, v: Tensor, layout: Layout, known: State | None, keep: bool) -> list[Tensor]:
    """Σ k vᵀ before each chunk, and after the last one if `keep`: each (B, s, e)."""
    summed = slice(layout.chunks.count if keep else layout.chunks.count - 1)
    added = (k[:, summed].transpose(-1, -2) @ v[:, summed]).unbind(1)
    if known is None:
        return list(itertools.accumulate(added, initial=k.new_zeros(k.shape[0], k.shape[-1], v.shape[-1])))
    sums = list(itertools.accumulate(added, initial=known[ALL]))
    # ALL includes the tokens of a partly filled chunk, which are attended to; that chunk must start from BEFORE.
    return [torch.where(layout.begins, known[ALL], known[BEFORE]), *sums[1:]]
