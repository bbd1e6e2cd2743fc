"""What a model remembers while it decodes.

A layer's cache takes the keys and values of the new tokens and hands back those that they may attend to. Bytes declared
by `zoo.cost` are the bytes allocated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from zoo.site import Memory


class LayerCache(Protocol):
    """State of one layer."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was, as beam search needs."""


class Cache:
    """State of a model: one entry per layer, and how many tokens it has seen (padding included).

    memory: what is known of the encoder's output; its keys and values are in the layers' entries.
    """

    def __init__(self, layers: list[LayerCache], capacity: int) -> None:
        self.layers = layers
        self.capacity = capacity
        self.length = 0
        self.left_pad: Tensor | None = None
        self.memory: Memory | None = None

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def admit(self, tokens: int, left_pad: Tensor | None, prefix: Tensor | None = None) -> None:
        """Check that `tokens` more fit, and remember the padding, which only the first chunk may bring, as it alone may
        have a prefix, whole."""
        if self.length + tokens > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} tokens: {self.length} are in it and {tokens} more do not fit"
            )
        if left_pad is not None and self.length:
            raise ValueError("left_pad belongs to the first chunk only")
        if left_pad is not None:
            self.left_pad = left_pad
        if prefix is not None and (self.length or int((prefix + (0 if left_pad is None else left_pad)).max()) > tokens):
            raise ValueError("a prefix belongs to the first chunk, which must hold all of it")

    def forget_encoder(self) -> None:
        """Let the encoder's output go: the layers have their keys and values of it."""
        if self.memory is not None:
            self.memory = Memory(None, self.memory.text)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.left_pad is not None:
            self.left_pad = self.left_pad[rows]
        if self.memory is not None and self.memory.text is not None:
            self.memory = Memory(None, self.memory.text[rows])


class PartsCache:
    """What the parts of a block keep, by the part's name."""

    def __init__(self, parts: Mapping[str, LayerCache]) -> None:
        self.parts = dict(parts)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def reorder(self, rows: Tensor) -> None:
        for part in self.parts.values():
            part.reorder(rows)


class TokenCache:
    """What a layer keeps of each of the last `slots` tokens: keys and values, or whatever its mixer needs.

    Token t lives in slot t mod slots. With fewer slots than tokens, what leaves the window is overwritten (the rolling
    buffer of Mistral 7B, arXiv:2310.06825).
    """

    def __init__(self, *buffers: Tensor) -> None:
        """Each buffer: (B, heads, slots, features), all with the same B and slots."""
        self.buffers = list(buffers)
        self.slots = buffers[0].shape[2]
        self.length = 0

    @staticmethod
    def empty(
        batch: int, slots: int, shapes: Sequence[tuple[int, int]], like: Tensor, dtype: torch.dtype
    ) -> TokenCache:
        """One buffer for each (heads, features), on the device of `like`."""
        sizes = [(batch, heads, slots, features) for heads, features in shapes]
        return TokenCache(*(torch.zeros(size, dtype=dtype, device=like.device) for size in sizes))

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def extend(self, new: Sequence[Tensor], index: Tensor) -> tuple[list[Tensor], Tensor]:
        """Take the new tokens and return what they may attend to.

        new: one (B, heads, T, features) per buffer, at places index: (T,) in the stream → the same with S tokens, and
        their places: (S,).
        """
        start, end = self.length, self.length + index.shape[0]
        self.length = end
        if start == 0:
            self._write(new, max(0, end - self.slots), end)
            return list(new), index
        if end <= self.slots or index.shape[0] == 1:
            self._write(new, start, end)
            live = min(end, self.slots)
            return self._live(live, new), self._places(end, live, index)
        # A chunk that overflows the buffer: its first tokens still need what its last ones overwrite.
        live = min(start, self.slots)
        places = torch.cat((self._places(start, live, index), index))
        kept = [torch.cat(pair, dim=2) for pair in zip(self._live(live, new), new, strict=True)]
        self._write(new, max(start, end - self.slots), end)
        return kept, places

    def _live(self, live: int, like: Sequence[Tensor]) -> list[Tensor]:
        return [buffer[:, :, :live].to(x.dtype) for buffer, x in zip(self.buffers, like, strict=True)]

    def _write(self, new: Sequence[Tensor], start: int, end: int) -> None:
        """Store the last tokens of `new`, those from `start` to `end`."""
        first = start % self.slots
        head = min(end - start, self.slots - first)
        for buffer, tokens in zip(self.buffers, new, strict=True):
            kept = tokens[:, :, tokens.shape[2] - (end - start) :].detach()
            buffer[:, :, first : first + head] = kept[:, :, :head]
            buffer[:, :, : kept.shape[2] - head] = kept[:, :, head:]

    def _places(self, end: int, live: int, index: Tensor) -> Tensor:
        """(live,): which token each slot holds once `end` tokens were seen."""
        slot = torch.arange(live, device=index.device)
        return end - 1 - (end - 1 - slot) % self.slots

    def reorder(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]


class StateCache:
    """What a recurrent layer keeps: tensors by name, of a size that does not grow with the text."""

    def __init__(self, states: Mapping[str, Tensor]) -> None:
        """Each state: (B, …)."""
        self.states = dict(states)
        self._written: set[str] = set()

    @staticmethod
    def zeros(batch: int, shapes: Mapping[str, Sequence[int]], like: Tensor, dtype: torch.dtype) -> StateCache:
        """One state for each name, on the device of `like`."""
        return StateCache(
            {name: torch.zeros(batch, *shape, dtype=dtype, device=like.device) for name, shape in shapes.items()}
        )

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.states.values())

    def read(self, name: str, dtype: torch.dtype) -> Tensor | None:
        """The state that the last pass left; None before the first."""
        return self.states[name].to(dtype) if name in self._written else None

    def write(self, name: str, value: Tensor) -> None:
        """value: (B, …), of the state's size."""
        self.states[name].copy_(value.detach())
        self._written.add(name)

    def reorder(self, rows: Tensor) -> None:
        self.states = {name: state[rows] for name, state in self.states.items()}


class TokenStateCache(TokenCache, StateCache):
    """Tokens, and a state beside them."""

    def __init__(self, tokens: TokenCache, states: StateCache) -> None:
        TokenCache.__init__(self, *tokens.buffers)
        StateCache.__init__(self, states.states)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.buffers, *self.states.values()))

    def reorder(self, rows: Tensor) -> None:
        TokenCache.reorder(self, rows)
        StateCache.reorder(self, rows)


class MemoryCache:
    """Keys and values of the encoder's tokens, which all tokens of the decoder see: written once."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """keys, values: (B, K, slots, d)."""
        self.buffers = [keys, values]
        self.length = 0

    @staticmethod
    def empty(shape: tuple[int, int, int, int], like: Tensor, dtype: torch.dtype) -> MemoryCache:
        """On the device of `like`."""
        return MemoryCache(*(torch.zeros(shape, dtype=dtype, device=like.device) for _ in range(2)))

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def read(self) -> tuple[Tensor, Tensor]:
        """(B, K, S, d) each."""
        keys, values = (buffer[:, :, : self.length] for buffer in self.buffers)
        return keys, values

    def write(self, *new: Tensor) -> None:
        """Keys and values: (B, K, S, d)."""
        self.length, slots = new[0].shape[2], self.buffers[0].shape[2]
        if self.length > slots:
            raise ValueError(f"the cache holds {slots} tokens of the encoder's: {self.length} do not fit")
        for buffer, value in zip(self.buffers, new, strict=True):
            buffer[:, :, : self.length] = value.detach()

    def reorder(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]


class CrossCache:
    """What a block keeps that attends to an encoder: its mixer's own state, and keys and values of the encoder's."""

    def __init__(self, own: LayerCache, memory: MemoryCache) -> None:
        self.own, self.memory = own, memory

    @property
    def nbytes(self) -> int:
        return self.own.nbytes + self.memory.nbytes

    def reorder(self, rows: Tensor) -> None:
        self.own.reorder(rows)
        self.memory.reorder(rows)
