"""Sequence mixers: what moves information between tokens. One file per variant."""

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
    """Whether the block has no residual, and so no norm, for it."""
    degree: ClassVar[int] = 1
    """With which power of what it reads its output grows, where that is so large that only a norm keeps it finite."""

    counts_places: ClassVar[bool] = False
    """Whether it cuts a text by the places that tokens have in it, none of which may then be missing."""

    gives_queries: ClassVar[bool] = False
    """Whether it hands its queries to a position scheme that `reads_queries`."""

    reads_tokens: ClassVar[bool] = False
    """Whether it reads the ids of tokens."""

    adds_loss: ClassVar[bool] = False
    """Whether the layer adds to the training objective, by the mean over all tokens that it reads."""

    def resolve(self, d_model: int) -> Self:
        """The same mixer with every default turned into a number. Raises SpecError for what cannot be built."""
        return self

    @abstractmethod
    def build(self, site: LayerSite) -> MixerLayer:
        """The module. Called on a resolved spec."""

    @abstractmethod
    def cost(self, d_model: int, context: int) -> PartCost:
        """Per token of a forward pass over `context` tokens. Called on a resolved spec."""

    def decode_flops(self, d_model: int, context: int) -> float:
        """FLOPs of the pass that reads only the `context`-th token of a sequence, with those before it in the cache.

        By default what that token adds to a pass over the whole sequence. Called on a resolved spec.
        """
        before = (context - 1) * self.cost(d_model, context - 1).flops if context > 1 else 0.0
        return context * self.cost(d_model, context).flops - before

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """Expected number of parameters that a pass over `tokens` tokens uses. Called on a resolved spec."""
        return self.cost(d_model, 1).parameters

    def training_cost(self, d_model: int, context: int) -> PartCost:
        """Cost of a training step beyond a forward pass and twice as much backward, divided by three; negative where it
        costs less. Called on a resolved spec."""
        return PartCost(0)

    def pass_flops(self, context: int) -> float:
        """FLOPs of a forward pass that do not depend on its number of rows, where queries see `context` tokens:
        products of weights and positions alone. The backward pass costs as much again, since positions have no
        gradient. Called on a resolved spec."""
        return 0.0

    def state_flops(self, d_model: int, context: int) -> float:
        """Extra FLOPs, beyond `cost`, of leaving a state behind after a sequence of `context` tokens. Called on a
        resolved spec."""
        return 0.0

    @abstractmethod
    def cache_elements(self, capacity: int) -> int:
        """Numbers kept per sequence, for up to `capacity` tokens. Called on a resolved spec."""

    def cached(self) -> tuple[tuple[int, int], ...]:
        """(heads, features) of each kind of number that is kept of a token; none where a state of fixed size is kept.
        Called on a resolved spec."""
        return ()

    def positions(self) -> tuple[tuple[Position, int], ...]:
        """Position schemes in use and for how many heads: the model builds what they share over layers. By default its
        `position`, for its `heads`."""
        position = getattr(self, "position", None)
        return () if position is None else ((position, self.heads),)  # type: ignore[attr-defined]

    def check_ahead(self) -> None:
        """Raise SpecError where a token cannot be shown what comes after it, as encoders and prefixes ask."""
        raise SpecError("", f"{self.kind} reads from left to right: it cannot see later tokens")

    def check_scan(self) -> None:
        """Raise SpecError where its products cannot be computed in the pieces that it asks for. Called on a resolved
        spec."""

    @property
    def components(self) -> tuple[Mixer, ...]:
        """Mixers that it is made of: itself, unless it runs others."""
        return (self,)

    def check_causal(self) -> None:
        """Raise SpecError where what comes after a token cannot be kept from it, as all but encoders ask."""

    @property
    def caution(self) -> str | None:
        """Warning about valid but probably unintended settings; None without any."""
        return None

    @property
    def longest(self) -> int | None:
        """The most tokens that a text may have; None for any number."""
        return None

    def borrowed_elements(self, capacity: int) -> int:
        """Numbers of another layer's cache that it reads, per sequence of `capacity` tokens. Called on a resolved
        spec."""
        return 0

    @property
    def kv(self) -> str | None:
        """Identity of the layer's keys and values: layers with the same one can lend them to each other; None where
        they cannot be lent. Called on a resolved spec."""
        return None

    @property
    def borrows(self) -> bool:
        """Whether it attends to keys and values of a layer below."""
        return False

    @property
    def value_heads(self) -> tuple[int, int] | None:
        """(heads, features) of values that others may be added to; None where there are none. Of a resolved spec."""
        return None

    @property
    def shared_values(self) -> tuple[int, int] | None:
        """(heads, features) of the values that the layer mixes with other layers', which must have as many."""
        return None


SELF_ALONE = "a window of 1 shows a token itself alone: queries and keys change nothing and get no gradient"


class MixerLayer(nn.Module, ABC):
    """x: (B, T, D) → (B, T, D)."""

    @abstractmethod
    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        """With a cache, x holds the tokens after those that the cache has seen."""

    @abstractmethod
    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        """An empty cache for `batch` rows of up to `capacity` tokens."""

    def moved(self, kept: list[Tensor], by: int) -> list[Tensor]:
        """Cached tensors, (B, heads, T, features) each, as they would be at positions shifted by `by`.

        Raises UnsupportedError where that cannot be said without reading the text again.
        """
        raise UnsupportedError("mixer", f"{type(self).__name__} cannot move what it has cached to other places")
