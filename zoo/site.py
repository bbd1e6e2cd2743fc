"""Context of modules: their site in the model, the cost of a part, and the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

T = TypeVar("T")

Mask = Literal["causal", "all", "prefix"]
"""Attention mask: a token sees tokens up to itself; all of the text; or tokens up to itself and all of a prefix."""


@dataclass(frozen=True)
class LayerSite:
    """Site in the model that a block is built for."""

    d_model: int
    layer: int
    n_layers: int
    branch: int = 0
    """For a residual: its index in the stack, if all layers had as many residuals as this block."""
    nth: int = 0
    """For a residual: number of its layer's residuals that are applied before it."""
    other_layers: int = 0
    """Number of layers of this stack's encoder, or of its decoder if the stack `encodes` for one."""
    encodes: bool = False


@dataclass(frozen=True)
class PartCost:
    """Cost of one part of a block, per token of a forward pass over whole texts.

    A multiplication and an addition are two FLOPs. Matrix products and convolutions count; other elementwise work,
    softmax and norms do not.
    """

    parameters: int
    flops: float = 0.0
    """FLOPs that the architecture needs, however it is computed: the scores that the mask lets through, recurrences in
    recurrent form. Budgets count these."""
    flops_square: float = 0.0
    """The same with full T × T score matrices."""
    flops_executed: float = 0.0
    """FLOPs that this code executes: bands and gathered keys where it avoids the square, recurrences by chunks."""
    inactive: int = 0
    """Parameters that a token does not use: experts that it is not sent to."""

    @staticmethod
    def of(parameters: int, flops: float, inactive: int = 0) -> PartCost:
        """A part whose three counts of FLOPs are equal."""
        return PartCost(parameters, flops, flops, flops, inactive)

    def __add__(self, other: PartCost) -> PartCost:
        return PartCost(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.flops_square + other.flops_square,
            self.flops_executed + other.flops_executed,
            self.inactive + other.inactive,
        )

    def for_share(self, share: float) -> PartCost:
        """The same part, run for a share of the tokens."""
        return replace(
            self,
            flops=share * self.flops,
            flops_square=share * self.flops_square,
            flops_executed=share * self.flops_executed,
        )


def matmul_cost(parameters: int, matrix: int) -> PartCost:
    """Cost of a part with `parameters` parameters, of which `matrix` weights are each multiplied once per token."""
    return PartCost.of(parameters, 2.0 * matrix)


class Keys(NamedTuple):
    """Mean number of keys per query: keys seen, keys in a row of the T × T square, keys with a computed score."""

    seen: float
    square: float
    computed: float


def attention_cost(parameters: int, matrix: int, flops_per_key: float, keys: Keys) -> PartCost:
    """`matmul_cost` plus `flops_per_key` FLOPs for each key of a query."""
    flops = [2.0 * matrix + flops_per_key * each for each in keys]
    return PartCost(parameters, flops[0], flops[1], flops[2])


def mean_keys(context: int, window: int | None = None) -> float:
    """Mean number of keys that a query sees in a causal sequence of `context` tokens: mean of min(t + 1, window)."""
    width = min(context, window or context)
    return (width * (width + 1) / 2 + (context - width) * width) / context


class Given(TypedDict, total=False):
    """Optional inputs of a pass, in addition to tokens (B, T) and `left_pad`.

    documents: (B, T) int64, the number of each token's document, for rows of several, one after the other: a token sees
        its own document only, and positions count from its first token. For passes without padding or cache.
    right_pad: (B,) int64, number of padding tokens at the right of each row, for mask `all`.
    prefix: (B,) int64, length of the prefix that all tokens of a row see; 0 unless given.
    token_types: (B, T) int64; all 0 unless given.
    places: (B, T) int64, position ids for the position scheme, in place of the number of earlier tokens.
    block_places: (B, T) int64, position ids in a second dimension (`zoo.positions.two_dimensional`); 0 unless given.
    encoder_tokens: (B, S) int64, the encoder's input. encoder_left_pad, encoder_right_pad: (B,) int64, its padding.
    """

    documents: Tensor
    right_pad: Tensor
    prefix: Tensor
    token_types: Tensor
    places: Tensor
    block_places: Tensor
    encoder_tokens: Tensor
    encoder_left_pad: Tensor
    encoder_right_pad: Tensor


def of_piece(given: Given, start: int, end: int) -> Given:
    """Inputs of tokens `start` to `end` of a chunk; those that are not per token go with the chunk's first piece."""
    piece = Given() if start else given.copy()
    if "token_types" in given:
        piece["token_types"] = given["token_types"][:, start:end]
    if "places" in given:
        piece["places"] = given["places"][:, start:end]
    if "block_places" in given:
        piece["block_places"] = given["block_places"][:, start:end]
    return piece


@dataclass(frozen=True)
class Memory:
    """Encoder output. hidden: (B, S, D), None if a cache already holds its keys and values. text: (B, S), false on
    padding; None without padding."""

    hidden: Tensor | None
    text: Tensor | None


Show = Callable[[], Tensor]
"""Computes an internal, on request."""

Tap = Callable[[str, Show], None]
"""Callback that receives an internal's name and a function that computes it, so unused internals cost nothing."""


@dataclass
class ForwardPass:
    """One forward pass: its tokens, and what its layers share.

    index: (T,), index in the token stream, padding included; the first is `start`. left_pad: (B,) or None.
    documents: (B, T) or None, the number of each token's document.
    mask_kind: the attention mask. ends: (B,) or None, index at which each row's text ends and right padding begins.
    prefix_ends: (B,) or None, index at which each row's prefix ends. token_types: (B, T) or None.
    places, block_places: (B, T) or None, as given. memory: encoder output.
    tokens: (B, T). revalue: function that the model sets for the running layer to apply to its values, (B, K, T, d).
    lent: keys and values that layers leave for layers above, by `Mixer.kv`; None if no layer borrows any.
    shared: modules that belong to the model and serve several layers, by `Position.name_for`.
    losses: terms that layers add to the training objective, already weighted.
    states: state that parts of the stack carry from one layer to the next, by the part's name (see `zoo.features`).
    caches: state that such parts carry from one pass to the next, by the part's name; empty without a cache.
    kept: results that passes with the same cache share, by keys that name all they depend on; None without a cache.
    counts: counts that modules have passed to `count`, if this is a copy; None if they are recorded at once.
    """

    index: Tensor
    left_pad: Tensor | None = None
    mask_kind: Mask = "causal"
    ends: Tensor | None = None
    prefix_ends: Tensor | None = None
    token_types: Tensor | None = None
    places: Tensor | None = None
    block_places: Tensor | None = None
    memory: Memory | None = None
    documents: Tensor | None = None
    tokens: Tensor | None = None
    revalue: Callable[[Tensor], Tensor] | None = None
    lent: dict[str, tuple[Tensor, Tensor, Tensor]] | None = None
    shared: Mapping[str, nn.Module] = field(default_factory=dict)
    start: int = 0
    recorder: Tap | None = None
    prefix: str = ""
    losses: list[Tensor] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    caches: Mapping[str, object] = field(default_factory=dict)
    kept: dict[Any, Any] | None = None
    counts: list[tuple[Callable[[Tensor], None], Tensor]] | None = None
    _memo: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def of(tokens: Tensor, start: int = 0, left_pad: Tensor | None = None) -> ForwardPass:
        """The pass over `tokens` (B, T), the first of which is token `start` of the stream."""
        index = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        return ForwardPass(index, left_pad, tokens=tokens, start=start)

    def inner(self, count: int, start: int = 0, places: Tensor | None = None) -> ForwardPass:
        """A nested pass over `count` tokens or chunks of a part's own, numbered from `start`. places: (B, count), their
        positions in the text, if the layers are to use these."""
        index = torch.arange(start, start + count, device=self.index.device)
        own = ForwardPass(index, places=places, start=start, shared=self.shared, losses=self.losses)
        own.recorder, own.prefix, own.kept, own.counts = self.recorder, self.prefix, self.kept, self.counts
        return own

    @property
    def end(self) -> int:
        """Number of tokens in the stream up to and including this pass, padding included."""
        return self.start + self.index.shape[0]

    @property
    def positions(self) -> Tensor:
        """Positions for position schemes: `places`, (B, T), if given; else `order`."""
        return self.order if self.places is None else self.places

    @property
    def order(self) -> Tensor:
        """(T,), or (B, T) if rows are padded or have documents: number of earlier tokens in the token's own text or
        document, whatever `places` are given; negative on padding."""
        documents = self.documents
        if documents is not None:
            return self.once("order", lambda: self.index - self._begins(documents))
        return self.index if self.left_pad is None else self.index - self.left_pad[:, None]

    def _begins(self, documents: Tensor) -> Tensor:
        """(B, T): index of the first token of each token's document."""
        changes = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0))
        return torch.where(changes, self.index, 0).cummax(dim=1).values

    @property
    def text(self) -> Tensor | None:
        """(B, T), false on padding; None without padding."""
        kept = None if self.left_pad is None else self.index >= self.left_pad[:, None]
        if self.ends is None:
            return kept
        before = self.index < self.ends[:, None]
        return before if kept is None else kept & before

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """`make()`, computed at most once per forward pass for each key: layers with the same key share the result."""
        if key not in self._memo:
            self._memo[key] = make()
        value: T = self._memo[key]
        return value

    def copy(self) -> ForwardPass:
        """A copy with the same losses, lent tensors and memo so far; additions to it do not reach this pass, and counts
        are not recorded."""
        lent = None if self.lent is None else dict(self.lent)
        return replace(self, losses=list(self.losses), lent=lent, counts=[], _memo=dict(self._memo))

    def take(self, other: ForwardPass) -> None:
        """Merge what a copy of this pass has collected since."""
        self.losses += other.losses[len(self.losses) :]
        self._memo |= other._memo
        self.lent = other.lent
        for record, load in other.counts or ():
            self.count(record, load)

    def count(self, record: Callable[[Tensor], None], load: Tensor) -> None:
        """`record(load)`, once per pass, even if the pass is recomputed for its gradients."""
        if self.counts is None:
            record(load)
        else:
            self.counts.append((record, load))

    @property
    def listener(self) -> Tap | None:
        """`tap`; None without a recorder."""
        return None if self.recorder is None else self.tap

    def tap(self, name: str, show: Show) -> None:
        """Offer an internal to the recorder (see `zoo.taps`). Costs nothing without one."""
        if self.recorder is not None:
            self.recorder(self.prefix + name, show)
