"""Paged cache: rows take pages of tokens from a pool as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from zoo.caches import CacheKind
from zoo.caching.cache import Cache, Rollback, TokenCache, uncached
from zoo.errors import UnsupportedError
from zoo.kernels.compiling import on_device

if TYPE_CHECKING:
    from zoo.mixers import MixerLayer
    from zoo.spec import ModelSpec


class Paged(CacheKind):
    """Tokens are stored in pages of `page` tokens, which each row finds through its page table. A row takes pages as it
    grows, and freed pages go to other rows. Kwon et al. 2023 (PagedAttention), arXiv:2309.06180.

    Pages hold a row's own text, so padding takes none. `Cache.reorder` frees the pages of dropped rows; copies of a row
    share its pages until one of them writes (copy on write). `beside` and `join` admit further rows. Bytes are those
    of the pages in use; the pool reserves `pages` for each layer. Layers with a window keep their plain rolling buffer.
    """

    kind: Literal["paged"] = "paged"
    page: PositiveInt = 16
    """Tokens per page."""
    pages: PositiveInt | None = None
    """Number of pages in a layer's pool; null for as many as all rows can need."""

    def check(self, model: ModelSpec) -> None:
        super().check(model)
        if any(subset is not None for subset in model.subsets):
            raise UnsupportedError("cache", "paged does not support layers that run on only some of the tokens")

    def store_tokens(self, tokens: TokenCache, mixer: MixerLayer) -> TokenCache:
        if tokens.capacity is None:
            return tokens
        batch = tokens.buffers[0].shape[0]
        pages = self.pages or batch * ceil(tokens.capacity / self.page)
        pool = PagePool(tokens.buffers, tokens.capacity, self.page, pages)
        return PagedCache(pool, batch)

    def token_bytes(self, shapes: Sequence[tuple[int, int]], slots: int, rolling: bool, size: int) -> int:
        kept = slots if rolling else ceil(slots / self.page) * self.page
        return size * kept * sum(heads * features for heads, features in shapes)


class OutOfPagesError(ValueError):
    """Rows need more pages than the pool has."""


class PagePool:
    """The pages of a layer, (pages, heads, page, features) for each buffer, and the number of users of each page."""

    def __init__(self, like: Sequence[Tensor], capacity: int, page: int, pages: int) -> None:
        """like: the plain buffers, (B, heads, slots, features) each. capacity: most tokens of a row."""
        self.capacity, self.page = capacity, page
        self.buffers = [old.new_zeros(pages, old.shape[1], page, old.shape[3]) for old in like]
        self.users = [0] * pages
        self._free = list(range(pages))[::-1]

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use."""
        in_use = len(self.users) - len(self._free)
        return sum(buffer[:1].nbytes for buffer in self.buffers) * in_use

    def take(self) -> int:
        if not self._free:
            raise OutOfPagesError(f"all {len(self.users)} pages of the cache are in use")
        page = self._free.pop()
        self.users[page] = 1
        return page

    def share(self, pages: Sequence[int]) -> list[int]:
        for page in pages:
            self.users[page] += 1
        return list(pages)

    def drop(self, pages: Sequence[int]) -> None:
        for page in pages:
            self.users[page] -= 1
            if not self.users[page]:
                self._free.append(page)

    def own(self, page: int) -> int:
        """A page with the same content and a single user: the page itself, or a copy (copy on write)."""
        if self.users[page] == 1:
            return page
        copy = self.take()
        for buffer in self.buffers:
            buffer[copy] = buffer[page]
        self.drop([page])
        return copy


class PagedCache(TokenCache):
    """Token t of a row's own text lies in slot t mod page of the row's page ⌊t / page⌋."""

    def __init__(self, pool: PagePool, batch: int) -> None:
        self.pool, self.capacity = pool, pool.capacity
        self.length = 0
        self.pads = [0] * batch
        self.tables: list[list[int]] = [[] for _ in range(batch)]

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes

    def pad(self, left_pad: Tensor) -> None:
        self.pads = left_pad.tolist()

    def extend(self, new: Sequence[Tensor], index: Tensor) -> tuple[list[Tensor], Tensor]:
        start, end = self.length, self.length + index.shape[0]
        if len(new) != len(self.pool.buffers):
            raise uncached(len(new), len(self.pool.buffers))
        for table, pad in zip(self.tables, self.pads, strict=True):  # give each row pages of its own for the new tokens
            first, needed = max(0, start - pad) // self.pool.page, ceil(max(0, end - pad) / self.pool.page)
            for i in range(first, min(needed, len(table))):
                table[i] = self.pool.own(table[i])
            table.extend(self.pool.take() for _ in range(needed - len(table)))
        self.length = end
        row, token = (self._own(start, end) >= 0).nonzero().unbind(dim=1)  # padding is not stored
        page, slot = self._where(start, end)
        for buffer, x in zip(self.pool.buffers, new, strict=True):
            buffer[page[row, token], :, slot[row, token]] = x.detach()[row, :, token].to(buffer.dtype)
        if start == 0:
            return list(new), index
        page, slot = self._where(0, end)
        kept = [  # (B, heads, end, features)
            buffer[page, :, slot].transpose(1, 2).to(x.dtype) for buffer, x in zip(self.pool.buffers, new, strict=True)
        ]
        return kept, torch.arange(end, device=index.device)

    def _own(self, start: int, end: int) -> Tensor:
        """(B, end − start): positions in each row's own text, negative on padding."""
        device = self.pool.buffers[0].device
        return torch.arange(start, end, device=device) - on_device(self.pads, device)[:, None]

    def _where(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """(B, end − start) each: page and slot of each token; padding, which is masked, has the row's first token's."""
        own = self._own(start, end).clamp(min=0)
        width = max([1, *map(len, self.tables)])
        table = on_device([pages + [0] * (width - len(pages)) for pages in self.tables], own.device)
        return table.gather(1, own // self.pool.page), own % self.pool.page

    def reorder(self, rows: Tensor) -> None:
        chosen = rows.tolist()
        tables = [self.pool.share(self.tables[row]) for row in chosen]
        for table in self.tables:
            self.pool.drop(table)
        self.tables, self.pads = tables, [self.pads[row] for row in chosen]

    def divides(self, tokens: int) -> bool:
        return True

    def mark(self, tokens: int) -> Rollback:
        start = self.length

        def take_back(kept: int) -> None:
            self.length = start + kept
            for table, pad in zip(self.tables, self.pads, strict=True):
                needed = ceil(max(0, self.length - pad) / self.pool.page)
                self.pool.drop(table[needed:])
                del table[needed:]

        return take_back

    def shift(self, by: int) -> None:
        """Add `by` padding tokens before every row."""
        self.pads = [pad + by for pad in self.pads]
        self.length += by


def beside(cache: Cache, batch: int) -> Cache:
    """An empty cache for `batch` further rows, on the same pools. Raises ValueError unless every layer is paged."""
    return Cache([PagedCache(layer.pool, batch) for layer in _paged(cache)], batch)


def join(cache: Cache, other: Cache) -> None:
    """Append the rows of a cache made by `beside`, which is left empty. Shorter rows count as left-padded."""
    length = max(cache.length, other.length)
    for layer, added in zip(_paged(cache), _paged(other), strict=True):
        layer.shift(length - layer.length)
        added.shift(length - added.length)
        layer.tables, layer.pads = layer.tables + added.tables, layer.pads + added.pads
        added.tables, added.pads = [], []
    cache.length, cache.batch = length, cache.batch + other.batch
    pads = _paged(cache)[0].pads
    cache.left_pad = on_device(pads, _paged(cache)[0].pool.buffers[0].device) if any(pads) else None


def _paged(cache: Cache) -> list[PagedCache]:
    layers = [layer for layer in cache.layers if isinstance(layer, PagedCache)]
    if len(layers) < len(cache.layers):
        raise ValueError("further rows need a paged cache in every layer: no windows, recurrent states or encoders")
    return layers
