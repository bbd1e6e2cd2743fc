"""Visibility of keys: which keys a query sees.

Also the requirements of an attention call, without its tensors, by which a backend is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from zoo.site import ForwardPass, Mask, Tap

# Modifications of attention scores: scale, bias, softcap, sinks, dropout.


@dataclass(frozen=True)
class Scoring:
    """Scores softcap(QKᵀ · scale + bias), and the softmax over them.

    softcap: c · tanh(z / c) (Gemma 2, arXiv:2408.00118), before the mask. bias: (H, T, S) or (B, H, T, S),
    or a shape that broadcasts to it.
    sinks: (H,), a logit per head that takes its share of the softmax and gives no value (gpt-oss, arXiv:2508.10925).
    dropout: probability that a weight is dropped. tap: receives the largest scores, the entropies and the weights,
    whatever the backend (see `zoo.attending.plain`).
    """

    scale: float
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0
    tap: Tap | None = None


T = TypeVar("T")

QUERIES_AT_ONCE = 1024
"""Number of queries whose mask `alone` computes at a time."""


class Pattern(Protocol):
    """A pattern of `zoo.sparsities`."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor: ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor: ...


@dataclass(frozen=True)
class Visible:
    """Which keys a query sees: its own and earlier ones, at most `window` in all.

    queries: (T,), keys: (S,), indices in the token stream; an empty cache slot has a negative index.
    left_pad: (B,) or None; a row's keys before this index are padding. Padding sees padding, so that no row of scores
    is empty.
    mask_kind: `all` shows later keys, too; `prefix` shows keys before `prefix_ends`: (B,) or None.
    ends: (B,) or None; a row's keys from this index on are padding.
    documents: (B, S) or None, the number of each index's document; a query sees keys of its own.
    pattern: selects among these keys, by positions in the row's own text.
    """

    queries: Tensor
    keys: Tensor
    window: int | None = None
    left_pad: Tensor | None = None
    mask_kind: Mask = "causal"
    prefix_ends: Tensor | None = None
    ends: Tensor | None = None
    documents: Tensor | None = None
    pattern: Pattern | None = None
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def to(
        cls, step: ForwardPass, keys: Tensor, window: int | None = None, pattern: Pattern | None = None, name: str = ""
    ) -> Visible:
        """Visibility of keys at indices `keys`, (S,), for the tokens of a pass. Without a cache, layers with the same
        window and pattern share the object and its mask; `name` identifies the pattern."""

        def make() -> Visible:
            rows = step.left_pad, step.mask_kind, step.prefix_ends, step.ends, step.documents
            return cls(step.index, keys, window, *rows, pattern)

        return step.once(f"visible: {window} {name}", make) if keys is step.index else make()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """`make()`, computed once for all layers that share this object."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    @property
    def backward(self) -> bool:
        """Whether no query sees later keys."""
        return self.mask_kind != "all" and self.prefix_ends is None

    @property
    def padded(self) -> bool:
        return self.left_pad is not None or self.ends is not None

    @property
    def whole(self) -> bool:
        """Whether each row is one text."""
        return not self.padded and self.documents is None

    @property
    def aligned(self) -> bool:
        """Whether queries and keys are the same unpadded stretch of one text, so that the mask is a plain triangle or
        band."""
        return self.keys is self.queries and self.backward and self.whole

    @property
    def everything(self) -> bool:
        """Whether no mask is needed. A cache gives a single query only the slots that it may see, except in compiled
        programs (`TokenCache`)."""
        alone = self.queries.shape[0] == 1 and self.backward and not torch.compiler.is_compiling()
        return self.whole and (alone or self.mask_kind == "all")

    @property
    def share(self) -> float:
        """Share of the T × S scores that a kernel computes if it skips masked ones: that of a triangle or band if
        `aligned`, else 1."""
        queries, keys = self.queries.shape[0], self.keys.shape[0]
        if not self.aligned:
            return 1.0
        near = min(self.window or queries, queries)
        return near * (2 * queries - near + 1) / 2 / (queries * keys)

    def mask(self) -> Tensor:
        """True where the key is seen: (T, S), or (B, 1, T, S) where rows differ."""
        return self.once("mask", self._mask)

    def _mask(self) -> Tensor:
        queries = self.queries[:, None]
        distance = queries - self.keys
        seen = (self.keys >= 0) & ((distance >= 0) | (self.mask_kind == "all"))
        if self.window is not None:
            seen &= distance < self.window
        if self.pattern is not None:
            begin = 0 if self.left_pad is None else self.left_pad[:, None, None]
            seen = seen & self.pattern.sees(queries - begin, self.keys - begin)
        if self.prefix_ends is not None:
            seen = seen | ((self.keys >= 0) & (self.keys < self.prefix_ends[:, None, None]))
        if self.documents is not None:
            seen = seen & (self.documents[:, self.queries, None] == self.documents[:, None, self.keys])
        if self.left_pad is not None:
            pad = self.left_pad[:, None, None]
            seen = seen & ((self.keys >= pad) | (queries < pad))
        if self.ends is not None:
            end = self.ends[:, None, None]
            seen = seen & ((self.keys < end) | (queries >= end))
        return seen if seen.dim() == 2 else seen[:, None]

    def alone(self) -> Tensor:
        """True where a query sees itself and nothing else: (T,), or (B, 1, T) where rows differ."""
        return self.once("alone", self._alone)

    def _alone(self) -> Tensor:
        if self.aligned and self.pattern is None and self.window != 1:
            return self.queries == self.queries[0]
        # In pieces: a pattern may serve to avoid the full T × S square.
        some = self.queries.split(QUERIES_AT_ONCE)
        return torch.cat([replace(self, queries=queries).mask().sum(dim=-1) == 1 for queries in some], dim=-1)


class Needs(NamedTuple):
    """queries, keys: their numbers. features: widths of a head's queries and values, the smaller first.

    aligned, everything: as in `Visible`. gradient: whether a backward pass follows. ordered: whether sums must be
    deterministic, in a fixed order.
    """

    queries: int
    keys: int
    features: tuple[int, int]
    aligned: bool = True
    everything: bool = False
    window: int | None = None
    pattern: bool = False
    bias: Literal["none", "constant", "learned"] = "none"
    softcap: bool = False
    sinks: bool = False
    dropout: bool = False
    gradient: bool = False
    ordered: bool = False

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Needs:
        bias = scoring.bias
        return cls(
            queries=q.shape[2],
            keys=k.shape[2],
            features=(min(q.shape[3], v.shape[3]), max(q.shape[3], v.shape[3])),
            aligned=visible.aligned,
            everything=visible.everything,
            window=visible.window,
            pattern=visible.pattern is not None,
            bias="none" if bias is None else "learned" if bias.requires_grad else "constant",
            softcap=scoring.softcap is not None,
            sinks=scoring.sinks is not None,
            dropout=scoring.dropout > 0,
            gradient=torch.is_grad_enabled() and q.requires_grad,
            ordered=torch.are_deterministic_algorithms_enabled(),
        )

    @property
    def plain_scores(self) -> bool:
        """Whether scores are QKᵀ · scale and nothing else."""
        return self.bias == "none" and not self.softcap and not self.sinks

    @property
    def whole(self) -> bool:
        """Whether each query sees all keys, or all keys up to itself."""
        near = self.window is not None and self.window < self.queries
        return (self.aligned or self.everything) and not near and not self.pattern


class Backend(Protocol):
    """A module that computes attention."""

    RANK: int
    """Place among the backends, the fastest first: the first that can serve a call, and pays, does."""
    KERNEL: bool
    """Whether it runs as one fused kernel on a GPU and never holds all scores."""
    HOOKED: bool
    """Whether torch's hook can replace its kernel with FlashAttention-3."""

    def obstacle(self, needs: Needs) -> str | None:
        """Reason why the backend cannot serve the call, as a phrase after its name; None if it can."""

    def pays(self, device: str, dtype: torch.dtype, needs: Needs) -> bool:
        """Whether it is faster than the backends after it on this kind of device, for a call that it can serve."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """Attention of one backend; see `zoo.attend.attend`."""
