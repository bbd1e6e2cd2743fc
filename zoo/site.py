"""Where a module stands in the model, and what a part costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

Mask = Literal["causal", "all", "prefix"]
"""Visibility of tokens: those up to their own; all of the text; or those and all of a prefix of their row."""


@dataclass(frozen=True)
class LayerSite:
    """The place a block is built for."""

    d_model: int
    layer: int
    n_layers: int
    branch: int = 0
    """For a residual: how many others the layers up to here have, of blocks like this one."""
    nth: int = 0
    """For a residual: how many of its layer's come before it, one after the other."""
    other_layers: int = 0
    """Layers of the encoder beside this stack, or of the decoder where this stack `encodes` for one."""
    encodes: bool = False


@dataclass(frozen=True)
class PartCost:
    """Cost of one part of a block, per token of a forward pass over whole texts.

    A multiplication and an addition are two FLOPs. Products of matrices and convolutions count; other elementwise work,
    softmax and norms do not.
    """

    parameters: int
    flops: float = 0.0
    """FLOPs that the architecture needs, however it is computed: the scores that the mask lets through, a recurrence as
    it is written. Budgets count these."""
    flops_square: float = 0.0
    """The same with whole T × T matrices of scores."""
    flops_executed: float = 0.0
    """FLOPs executed here: bands and gathered keys where there is no need of the square, chunks of a recurrence."""
    inactive: int = 0
    """Parameters that a token does not use: experts that it is not sent to."""

    @staticmethod
    def of(parameters: int, flops: float, inactive: int = 0) -> PartCost:
        """A part that is computed as it is written."""
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
    """A part whose work is `matrix` weights, each used once per token, out of `parameters` in all."""
    return PartCost.of(parameters, 2.0 * matrix)


class Keys(NamedTuple):
    """Keys for each query in the mean: those that it sees, those in a row of the square, those computed."""

    seen: float
    square: float
    computed: float


def attention_cost(parameters: int, matrix: int, flops_per_key: float, keys: Keys) -> PartCost:
    """`matmul_cost`, and so many FLOPs for each key of a query."""
    flops = [2.0 * matrix + flops_per_key * each for each in keys]
    return PartCost(parameters, flops[0], flops[1], flops[2])


def mean_keys(context: int, window: int | None = None) -> float:
    """Mean number of keys that a query sees, over a causal sequence of `context`: mean of min(t + 1, window)."""
    width = min(context, window or context)
    return (width * (width + 1) / 2 + (context - width) * width) / context


class Given(TypedDict, total=False):
    """Optional inputs of a pass, beside the tokens (B, T) and `left_pad`.

    right_pad: (B,) int64, padding tokens at the right of each row, where tokens see all.
    prefix: (B,) int64, tokens at the beginning of each row's text that all of its tokens see; none unless given.
    token_types: (B, T) int64; all 0 unless given.
    places: (B, T) int64, where each token is for its position scheme, in place of the number of those before it.
    block_places: (B, T) int64, in a second dimension (see `zoo.positions.two_dimensional`); all 0 unless given.
    encoder_tokens: (B, S) int64, what the encoder reads. encoder_left_pad, encoder_right_pad: (B,) int64, its padding.
    """

    right_pad: Tensor
    prefix: Tensor
    token_types: Tensor
    places: Tensor
    block_places: Tensor
    encoder_tokens: Tensor
    encoder_left_pad: Tensor
    encoder_right_pad: Tensor


def of_piece(given: Given, start: int, end: int) -> Given:
    """The same for tokens `start` to `end` of a chunk: what is not of single tokens belongs to the first of them."""
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
    """Encoder output. hidden: (B, S, D), None where a cache holds all that is needed of it. text: (B, S), false on
    padding; None where there is none."""

    hidden: Tensor | None
    text: Tensor | None


Show = Callable[[], Tensor]
"""Makes an internal, for whoever wants to see it."""

Tap = Callable[[str, Show], None]
"""Told the name of an internal, and how to have it: what nobody asks for is not computed."""


@dataclass
class ForwardPass:
    """One forward pass: which tokens these are, and what its layers share.

    index: (T,), place in the stream, padding included; the first is `start`. left_pad: (B,) or None.
    sight: what tokens see. ends: (B,) or None, the place at which each row's text ends, right padding after it.
    prefix_ends: (B,) or None, the place before which each row's tokens are seen by all of them. token_types: (B, T) or
    None. places, block_places: (B, T) or None, as given. memory: what the encoder made of its tokens.
    tokens: (B, T). revalue: what the layer that runs does to its values, (B, K, T, d), set by the model.
    lent: keys and values that layers leave for those above them, by `Mixer.kv`; None where nobody reads them.
    shared: modules that belong to the model and serve several layers, by `Position.name_for`.
    losses: what layers add to the training objective, already weighted.
    states: what parts of the stack keep from one layer to the next, by the part's name (see `zoo.features`).
    again: whether a pass that was made before is computed again for its gradients: what it counts is counted already.
    """

    index: Tensor
    left_pad: Tensor | None = None
    sight: Mask = "causal"
    ends: Tensor | None = None
    prefix_ends: Tensor | None = None
    token_types: Tensor | None = None
    places: Tensor | None = None
    block_places: Tensor | None = None
    memory: Memory | None = None
    tokens: Tensor | None = None
    revalue: Callable[[Tensor], Tensor] | None = None
    lent: dict[str, tuple[Tensor, Tensor, Tensor]] | None = None
    shared: Mapping[str, nn.Module] = field(default_factory=dict)
    start: int = 0
    recorder: Tap | None = None
    prefix: str = ""
    losses: list[Tensor] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    again: bool = False
    _memo: dict[Any, Any] = field(default_factory=dict)

    @staticmethod
    def of(tokens: Tensor, start: int = 0, left_pad: Tensor | None = None) -> ForwardPass:
        """The pass over `tokens` (B, T), the first of which is token `start` of the stream."""
        index = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        return ForwardPass(index, left_pad, tokens=tokens, start=start)

    def inner(self, count: int, start: int = 0, places: Tensor | None = None) -> ForwardPass:
        """A pass inside this one over tokens, or chunks, of a part's own, `count` of them, the first of which is number
        `start`. places: (B, count), theirs in the text, where it counts in layers."""
        index = torch.arange(start, start + count, device=self.index.device)
        own = ForwardPass(index, places=places, start=start, shared=self.shared, losses=self.losses)
        own.recorder, own.prefix = self.recorder, self.prefix
        return own

    @property
    def end(self) -> int:
        """Tokens of the stream up to the last of this pass, padding included."""
        return self.start + self.index.shape[0]

    @property
    def positions(self) -> Tensor:
        """(T,), or (B, T) where rows are padded: place in the row's own text, negative on padding. (B, T), as they are
        given, where they are."""
        return self.order if self.places is None else self.places

    @property
    def order(self) -> Tensor:
        """(T,), or (B, T) where rows are padded: how many tokens of the row's own text come before, whatever places are
        given; negative on padding."""
        return self.index if self.left_pad is None else self.index - self.left_pad[:, None]

    @property
    def text(self) -> Tensor | None:
        """(B, T), false on padding; None where there is none."""
        kept = None if self.left_pad is None else self.index >= self.left_pad[:, None]
        if self.ends is None:
            return kept
        before = self.index < self.ends[:, None]
        return before if kept is None else kept & before

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """`make()`, computed at most once per forward pass for each key: layers that agree share it."""
        if key not in self._memo:
            self._memo[key] = make()
        value: T = self._memo[key]
        return value

    def copy(self) -> ForwardPass:
        """A pass that has so far left the same, and leaves what comes elsewhere."""
        lent = None if self.lent is None else dict(self.lent)
        return replace(self, losses=list(self.losses), lent=lent, _memo=dict(self._memo))

    def take(self, other: ForwardPass) -> None:
        """Keep what a copy of this pass has left since."""
        self.losses += other.losses[len(self.losses) :]
        self._memo |= other._memo
        self.lent = other.lent

    def tap(self, name: str, show: Show) -> None:
        """Offer an internal to whoever listens (see `zoo.taps`). Free when nobody does."""
        if self.recorder is not None:
            self.recorder(self.prefix + name, show)
