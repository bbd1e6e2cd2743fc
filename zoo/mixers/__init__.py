"""Sequence mixers: layers that move information between tokens. One file per variant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.errors import SpecError, UnsupportedError
from zoo.positions import Position
from zoo.settings.axis import Variant
from zoo.site import ForwardPass, LayerSite, PartCost


class Mixer(Variant):
    """Builds a `MixerLayer` and declares what it costs."""

    absent: ClassVar[bool] = False
    """Whether the block leaves the mixer out, with its residual and its norm."""
    degree: ClassVar[int] = 1
    """Power of the input with which the output grows; above 1 only where a norm is needed to keep the output finite."""

    counts_places: ClassVar[bool] = False
    """Whether the mixer splits a text by token positions, so that no token may be skipped."""

    gives_queries: ClassVar[bool] = False
    """Whether the mixer passes its queries to a position scheme that `reads_queries`."""

    reads_tokens: ClassVar[bool] = False
    """Whether the mixer reads token ids."""

    adds_loss: ClassVar[bool] = False
    """Whether the layer adds a loss, a mean over all tokens that it reads, to the training objective."""

    def resolve(self, d_model: int) -> Self:
        """Copy with every default replaced by a number. Raises SpecError for settings that cannot be built."""
        return self

    @abstractmethod
    def build(self, site: LayerSite) -> MixerLayer:
        """Build the layer. Called on a resolved spec."""

    @abstractmethod
    def cost(self, d_model: int, context: int) -> PartCost:
        """Cost per token of a forward pass over `context` tokens. Called on a resolved spec."""

    def decode_flops(self, d_model: int, context: int) -> float:
        """FLOPs of decoding the `context`-th token of a sequence, with the tokens before it in the cache.

        Default: the FLOPs that this token adds to a pass over the whole sequence. Called on a resolved spec.
        """
        before = (context - 1) * self.cost(d_model, context - 1).flops if context > 1 else 0.0
        return context * self.cost(d_model, context).flops - before

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """Expected number of parameters that a pass over `tokens` tokens uses. Called on a resolved spec."""
        return self.cost(d_model, 1).parameters

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """Difference between a training step and three forward passes, divided by three; negative if the step costs
        less. Called on a resolved spec."""
        return PartCost(0)

    def pass_flops(self, context: int) -> float:
        """FLOPs of a forward pass that do not depend on the batch size, if queries see `context` tokens: products of
        weights with positions alone. The backward pass costs as much again, since positions have no gradient. Called
        on a resolved spec."""
        return 0.0

    def state_flops(self, d_model: int, context: int) -> float:
        """FLOPs, beyond `cost`, of computing the state to cache after a sequence of `context` tokens. Called on a
        resolved spec."""
        return 0.0

    @abstractmethod
    def cache_elements(self, capacity: int) -> int:
        """Numbers cached per sequence of up to `capacity` tokens. Called on a resolved spec."""

    def cached(self) -> tuple[tuple[int, int], ...]:
        """(heads, features) of each tensor cached per token; empty if the cache is a state of fixed size. Called on a
        resolved spec."""
        return ()

    def positions(self) -> tuple[tuple[Position, int], ...]:
        """(scheme, heads) of each position scheme in use, for which the model builds the modules that layers share.
        Default: `position`, for `heads` heads."""
        position = getattr(self, "position", None)
        return () if position is None else ((position, self.heads),)  # type: ignore[attr-defined]

    def check_ahead(self) -> None:
        """Raise SpecError if tokens cannot see later tokens, as encoders and prefixes require."""
        raise SpecError("", f"{self.kind} is causal: it cannot be used in an encoder or with visible: prefix")

    def check_scan(self) -> None:
        """Raise SpecError if the scan cannot be computed in chunks of the given size. Called on a resolved spec."""

    @property
    def components(self) -> tuple[Mixer, ...]:
        """Mixers that this one consists of: itself, unless it runs others."""
        return (self,)

    def check_causal(self) -> None:
        """Raise SpecError if later tokens cannot be hidden, as all models but encoders require."""

    @property
    def caution(self) -> str | None:
        """Warning about valid but probably unintended settings; None without any."""
        return None

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens in a text; None for no limit."""
        return None

    def borrowed_elements(self, capacity: int) -> int:
        """Numbers that the layer reads from another layer's cache, per sequence of `capacity` tokens. Called on a
        resolved spec."""
        return 0

    @property
    def kv(self) -> str | None:
        """Identity of the layer's keys and values: layers with the same one can share them; None if they cannot be
        shared. Called on a resolved spec."""
        return None

    @property
    def borrows(self) -> bool:
        """Whether the layer attends to keys and values of a layer below."""
        return False

    @property
    def value_heads(self) -> tuple[int, int] | None:
        """(heads, features) of the values to which others may be added; None without any. Called on a resolved spec."""
        return None

    @property
    def shared_values(self) -> tuple[int, int] | None:
        """(heads, features) of values mixed with other layers' values of the same shape; None if they are not mixed."""
        return None


SELF_ALONE = "with a window of 1 a token sees only itself: queries and keys have no effect and get no gradient"


class MixerLayer(nn.Module, ABC):
    """x: (B, T, D) → (B, T, D)."""

    @abstractmethod
    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        """Mix tokens. With a cache, x holds the tokens that follow the cached ones."""

    @abstractmethod
    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        """Empty cache for `batch` rows of up to `capacity` tokens."""

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        """Cached tensors, (B, heads, T, features) each, as they would be at positions shifted by `by`.

        Raises UnsupportedError if that requires reading the text again.
        """
        raise UnsupportedError("mixer", f"{type(self).__name__} cannot shift its cache to other positions")
