"""Storage formats of a KV cache: one file per kind.

model.new_cache(batch, capacity, kind="int8")
zoo.cost(spec).cache_bytes(batch, context, cache="int8")
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from zoo.caching.cache import LayerCache, TokenCache
from zoo.caching.parts import ChunkCache, PartsCache
from zoo.caching.states import TokenStateCache
from zoo.errors import UnsupportedError
from zoo.settings.axis import Choice, Spec, Variant
from zoo.settings.edits import SpecJson
from zoo.settings.explain import checked

if TYPE_CHECKING:
    from zoo.mixers import Mixer, MixerLayer
    from zoo.spec import ModelSpec


class CacheKind(Variant):
    """Storage format of the tokens that mixers cache. Recurrent states and the encoder's keys and values, which are
    written once, are always stored plainly."""

    @property
    def label(self) -> str:
        """Its kind, and its settings that differ from the default: `int4, group 16`."""
        given = self.model_dump(exclude={"kind"}, exclude_defaults=True)
        return ", ".join([self.kind, *(f"{name} {value}" for name, value in given.items())])

    def check(self, model: ModelSpec) -> None:
        """Raise UnsupportedError if the kind cannot serve the model."""
        if not any(layer.mixer.cached() for layer in model.layers):
            raise UnsupportedError("cache", f"{self.kind} needs a layer with a plain KV cache; this model has none")

    def store(self, layer: LayerCache, mixer: MixerLayer) -> LayerCache:
        """Replacement for a layer's plain cache, which is empty."""
        if isinstance(layer, PartsCache):
            return PartsCache({name: self.store(part, mixer) for name, part in layer.parts.items()})
        if isinstance(layer, ChunkCache):
            layer.rows = [[self.store(each, mixer) for each in row] for row in layer.rows]
            return layer
        if isinstance(layer, TokenStateCache):
            return TokenStateCache(self.store_tokens(layer.tokens, mixer), layer)
        return self.store_tokens(layer, mixer) if isinstance(layer, TokenCache) else layer

    @abstractmethod
    def store_tokens(self, tokens: TokenCache, mixer: MixerLayer) -> TokenCache:
        """Replacement for a layer's plain token cache, which is empty."""

    def extra_bytes(self, mixer: Mixer, capacity: int, size: int) -> int:
        """Bytes per sequence beyond those of a plain cache with elements of `size` bytes; negative if fewer."""
        shapes = mixer.cached()
        if not shapes:
            return 0
        per_token = sum(heads * features for heads, features in shapes)
        slots = (mixer.cache_elements(capacity) - mixer.cache_elements(0)) // per_token
        rolling = mixer.cache_elements(capacity + 1) == mixer.cache_elements(capacity)
        return self.token_bytes(shapes, slots, rolling, size) - size * per_token * slots

    @abstractmethod
    def token_bytes(self, shapes: Sequence[tuple[int, int]], slots: int, rolling: bool, size: int) -> int:
        """Bytes per sequence for one buffer of each (heads, features). slots: those of a plain buffer. rolling: whether
        they are a window's."""


class _Asked(Spec):
    cache: Annotated[CacheKind, Choice("zoo.caches")]
    """Kind of cache, by name or as a map with its settings."""


def cache_kind(value: CacheKind | str | SpecJson) -> CacheKind:
    """A kind, given as a spec, as a map with `kind`, or as the bare kind. Raises SpecError."""
    return value if isinstance(value, CacheKind) else checked(_Asked, {"cache": value}).cache
