"""Caches of constant size: a recurrent state, alone or beside a token cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.caching.cache import ASK_THE_MODEL, Rollback, TokenCache

REMEDY = "give each its own name, as in scan(…, name='second')"


class StateCache:
    """Recurrent state of a layer: tensors by name, whose size does not grow with the text."""

    capacity: int | None = None

    def __init__(self, states: Mapping[str, Tensor]) -> None:
        """Each state: (B, …)."""
        self.states = dict(states)
        self._written: set[str] = set()
        self._in_pass: set[str] | None = None
        """States written in the pass that has begun; None if none has, as when a layer is called on its own."""

    def begin_pass(self) -> None:
        """Expect one write to each state. A block calls this before its part runs."""
        self._in_pass = set()

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self.states.values())

    @staticmethod
    def zeros(batch: int, shapes: Mapping[str, Sequence[int]], like: Tensor, dtype: torch.dtype) -> StateCache:
        """One state for each name, on the device of `like`."""
        return StateCache(
            {name: torch.zeros(batch, *shape, dtype=dtype, device=like.device) for name, shape in shapes.items()}
        )

    def pad(self, left_pad: Tensor) -> None:
        """Does nothing: padding leaves no trace in a state."""

    def readable(self, tokens: int) -> int:
        return tokens

    def read(self, name: str, dtype: torch.dtype) -> Tensor | None:
        """The state after the last pass, in `dtype`; None before the first. Raises TypeError for an unknown name."""
        state = self._known(name)
        return state.to(dtype) if name in self._written else None

    def write(self, name: str, value: Tensor) -> None:
        """value: (B, …), of the state's shape. Raises TypeError for an unknown name, or one written before in this
        pass."""
        if self._in_pass is not None:
            if name in self._in_pass:
                raise TypeError(f"two parts of a layer keep a state named '{name}': {REMEDY}")
            self._in_pass.add(name)
        self._known(name).copy_(value.detach())
        self._written.add(name)

    def _known(self, name: str) -> Tensor:
        if name not in self.states:
            known = ", ".join(self.states)
            raise TypeError(f"the cache has no state '{name}', only {known}: {ASK_THE_MODEL}")
        return self.states[name]

    def reorder(self, rows: Tensor) -> None:
        self.states = {name: state[rows] for name, state in self.states.items()}

    def divides(self, tokens: int) -> bool:
        return not self.states

    def mark(self, tokens: int) -> Rollback:
        saved, written = {name: state.clone() for name, state in self.states.items()}, set(self._written)

        def take_back(kept: int) -> None:
            if kept and saved:
                raise ValueError("a recurrent state can only be rolled back whole")
            self.states, self._written = saved, written

        return take_back


class TokenStateCache(TokenCache, StateCache):
    """A token cache together with recurrent states."""

    def __init__(self, tokens: TokenCache, states: StateCache) -> None:
        StateCache.__init__(self, states.states)
        self.tokens, self.capacity = tokens, tokens.capacity

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + sum(state.nbytes for state in self.states.values())

    def pad(self, left_pad: Tensor) -> None:
        self.tokens.pad(left_pad)

    def readable(self, tokens: int) -> int:
        return self.tokens.readable(tokens)

    def extend(self, new: Sequence[Tensor], index: Tensor) -> tuple[list[Tensor], Tensor]:
        return self.tokens.extend(new, index)

    def reorder(self, rows: Tensor) -> None:
        self.tokens.reorder(rows)
        StateCache.reorder(self, rows)

    def divides(self, tokens: int) -> bool:
        return False

    def mark(self, tokens: int) -> Rollback:
        tokens_back, states_back = self.tokens.mark(tokens), StateCache.mark(self, tokens)

        def take_back(kept: int) -> None:
            tokens_back(kept)
            states_back(kept)

        return take_back
