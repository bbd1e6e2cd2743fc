"""KV cache of a model, and the interface of all state that layers keep while decoding.

A layer's cache takes the keys and values of new tokens and returns those that these may attend to. The bytes that
`zoo.cost` declares are those allocated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from zoo.site import Memory

Rollback = Callable[[int], None]
"""Rollback function: discards the tokens read since `mark`, except the given number of first ones."""
ASK_THE_MODEL = "create the cache with this model's new_cache"
K = TypeVar("K")
NOTHING_TO_CACHE = "an encoder reads a text in one pass: there is nothing to cache"


class LayerCache(Protocol):
    """State of one layer."""

    @property
    def capacity(self) -> int | None:
        """Number of tokens of the stream that the cache can hold; None for any number."""

    def pad(self, left_pad: Tensor) -> None:
        """Set the number of padding tokens at the left of each row, (B,), before the first pass. Raises ValueError if
        the cache cannot have padding."""

    def readable(self, tokens: int) -> int:
        """Number of the next `tokens` that fit in one pass: all, unless reading one evicts another still needed."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by the former row `rows[i]`, as beam search needs."""

    def divides(self, tokens: int) -> bool:
        """Whether a rollback of the next `tokens` can keep some of them."""

    def mark(self, tokens: int) -> Rollback:
        """Rollback function for the next tokens, at most `tokens`, as speculative decoding needs."""


def kept_by(reader: object, cache: LayerCache | None, kind: type[K]) -> K | None:
    """The cache of a layer, checked to be of the kind that `reader` keeps. Raises TypeError for another kind."""
    if cache is None or isinstance(cache, kind):
        return cache
    found, wanted = type(cache).__name__, kind.__name__
    who = reader if isinstance(reader, str) else type(reader).__name__
    raise TypeError(f"{who} needs a {wanted}, not a {found}: {ASK_THE_MODEL}")


def uncached(given: int, declared: int) -> ValueError:
    """Error for a number of buffers other than the mixer's `cached` declares."""
    return ValueError(f"extend got {given} buffers, but cached() declares {declared}")


class Cache:
    """State of a model: one entry per layer, and the number of tokens seen (padding included).

    memory: the encoder's output, as far as it is still needed; its keys and values are in the layers' entries.
    kept: results that the passes share (`zoo.site.ForwardPass`); not part of the state or of `nbytes`.
    """

    def __init__(self, layers: list[LayerCache], batch: int) -> None:
        self.layers, self.batch = layers, batch
        self.length = 0
        self.left_pad: Tensor | None = None
        self.memory: Memory | None = None
        self.kept: dict[Any, Any] = {}

    @property
    def capacity(self) -> int | None:
        """Number of tokens that the cache can hold; None for any number, if no layer has a limit."""
        return min((layer.capacity for layer in self.layers if layer.capacity is not None), default=None)

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def admit(self, batch: int, tokens: int, left_pad: Tensor | None, prefix: Tensor | None = None) -> None:
        """Check that a chunk of `tokens` tokens of `batch` rows fits, and store its padding. Raises ValueError if not,
        and for padding or a prefix after the first chunk, or a prefix that the first pass cannot hold."""
        if batch != self.batch:
            raise ValueError(f"the cache is for {self.batch} rows, not {batch}")
        capacity = self.capacity
        if capacity is not None and self.length + tokens > capacity:
            raise ValueError(f"{tokens} more tokens do not fit: the cache has {self.length} of at most {capacity}")
        if left_pad is not None and self.length:
            raise ValueError("left_pad belongs to the first chunk only")
        if prefix is not None:
            at_once, ends = self.readable(tokens), prefix + (0 if left_pad is None else left_pad)
            if self.length or int(ends.max()) > at_once:
                raise ValueError(
                    f"the first chunk must contain the whole prefix: at most {at_once} tokens are read in one pass"
                )
        if left_pad is not None:
            for layer in self.layers:
                layer.pad(left_pad)
            self.left_pad = left_pad

    def readable(self, tokens: int) -> int:
        """Number of the next `tokens` that fit in one pass."""
        return min(layer.readable(tokens) for layer in self.layers)

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by the former row `rows[i]`."""
        self.batch = rows.shape[0]
        for layer in self.layers:
            layer.reorder(rows)
        if self.left_pad is not None:
            self.left_pad = self.left_pad[rows]
        if self.memory is not None and self.memory.text is not None:
            self.memory = Memory(None, self.memory.text[rows])

    def mark(self, tokens: int) -> Callable[[int], int]:
        """Rollback function for the next tokens, at most `tokens`; its argument is the number of first ones to keep.

        The function returns how many of those must be read again: a recurrent state can only be restored whole.
        """
        start, divides = self.length, all(layer.divides(tokens) for layer in self.layers)
        take_back = [layer.mark(tokens) for layer in self.layers]

        def undo(kept: int) -> int:
            still = kept if divides else 0
            for undo_layer in take_back:
                undo_layer(still)
            self.length = start + still
            return kept - still

        return undo


class TokenCache:
    """Cache of the last `slots` tokens of a layer: keys and values, or whatever its mixer needs.

    Token t lives in slot t mod slots. With fewer slots than tokens, tokens that leave the window are overwritten (the
    rolling buffer of Mistral 7B, arXiv:2310.06825).
    """

    def __init__(self, *buffers: Tensor, rolling: bool = False) -> None:
        """Each buffer: (B, heads, slots, features), all with the same B and slots. rolling: whether overwritten tokens
        are never needed again, so that the number of tokens is unlimited."""
        self.buffers = list(buffers)
        self.slots = buffers[0].shape[2]
        self.capacity: int | None = None if rolling else self.slots
        self.length = 0

    @classmethod
    def empty(
        cls,
        batch: int,
        slots: int,
        shapes: Sequence[tuple[int, int]],
        like: Tensor,
        dtype: torch.dtype,
        rolling: bool = False,
    ) -> Self:
        """One buffer for each (heads, features), on the device of `like`."""
        sizes = [(batch, heads, slots, features) for heads, features in shapes]
        return cls(*(torch.zeros(size, dtype=dtype, device=like.device) for size in sizes), rolling=rolling)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def pad(self, left_pad: Tensor) -> None:
        """Does nothing: padding is stored like text, and masked."""

    def readable(self, tokens: int) -> int:
        return tokens

    def encode(self, new: Sequence[Tensor]) -> list[Tensor]:
        """New keys, values, …, (B, heads, T, features) each → the tensors that the buffers store."""
        return list(new)

    def decode(self, kept: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """Stored tensors → keys, values, …, in the dtypes of `like`."""
        return [x if x.dtype is y.dtype else x.to(y.dtype) for x, y in zip(kept, like, strict=True)]

    def extend(self, new: Sequence[Tensor], index: Tensor) -> tuple[list[Tensor], Tensor]:
        """Store the new tokens and return all that they may attend to.

        new: keys, values, …, (B, heads, T, features) each. index: (T,), their indices in the token stream → the same
        with S tokens, and their indices: (S,). Raises ValueError for a number of tensors that the buffers do not fit.
        """
        stored = self.encode(new)
        if len(stored) != len(self.buffers):
            raise uncached(len(new), len(self.buffers) * len(new) // len(stored))
        kept, places = self._keep(stored, index)
        return self.decode(kept, new), places

    def _keep(self, new: Sequence[Tensor], index: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        if torch.compiler.is_compiling():
            # One token, in a program that serves every index: all slots, unfilled ones with negative indices.
            slot = torch.arange(self.slots, device=index.device)
            for buffer, token in zip(self.buffers, new, strict=True):
                buffer.index_copy_(2, index % self.slots, token.to(buffer.dtype))
            return self.buffers, index - (index - slot) % self.slots
        start, end = self.length, self.length + index.shape[0]
        self.length = end
        if start == 0:
            self._write(new, max(0, end - self.slots), end)
            return new, index
        if end <= self.slots or index.shape[0] == 1:
            self._write(new, start, end)
            live = min(end, self.slots)
            return self._live(live), self._places(end, live, index)
        # The chunk overflows the buffer: its first tokens still need what its last ones overwrite.
        live = min(start, self.slots)
        places = torch.cat((self._places(start, live, index), index))
        kept = [torch.cat((old.to(x.dtype), x), dim=2) for old, x in zip(self._live(live), new, strict=True)]
        self._write(new, max(start, end - self.slots), end)
        return kept, places

    def _live(self, live: int) -> list[Tensor]:
        return [buffer.narrow(2, 0, live) for buffer in self.buffers]

    def _write(self, new: Sequence[Tensor], start: int, end: int) -> None:
        """Store the last tokens of `new`, those from `start` to `end`."""
        count, first = end - start, start % self.slots
        head = min(count, self.slots - first)
        for buffer, tokens in zip(self.buffers, new, strict=True):
            kept = tokens.detach() if tokens.requires_grad else tokens
            kept = kept if kept.shape[2] == count else kept.narrow(2, kept.shape[2] - count, count)
            if head == count:
                buffer.narrow(2, first, count).copy_(kept)
            else:  # wraps around to slot 0
                buffer.narrow(2, first, head).copy_(kept.narrow(2, 0, head))
                buffer.narrow(2, 0, count - head).copy_(kept.narrow(2, head, count - head))

    def _places(self, end: int, live: int, index: Tensor) -> Tensor:
        """(live,): index of the token that each slot holds after `end` tokens."""
        slot = torch.arange(live, device=index.device)
        return slot if end <= self.slots else end - 1 - (end - 1 - slot) % self.slots

    def reorder(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]

    def divides(self, tokens: int) -> bool:
        return tokens <= self.slots

    def mark(self, tokens: int) -> Rollback:
        """Save a copy of the slots that the next tokens will overwrite, for the rollback."""
        start = self.length
        first = max(start, self.slots) if start + tokens > self.slots else start + tokens
        taken = torch.arange(first, min(start + tokens, first + self.slots), device=self.buffers[0].device)
        saved = [buffer[:, :, taken % self.slots] for buffer in self.buffers]

        def take_back(kept: int) -> None:
            self.length = start + kept
            lost = taken >= self.length
            for buffer, before in zip(self.buffers, saved, strict=True):
                buffer[:, :, taken[lost] % self.slots] = before[:, :, lost]

        return take_back
