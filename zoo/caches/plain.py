"""Plain cache: tensors unchanged, in the cache's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from zoo.caches import CacheKind
from zoo.caching.cache import TokenCache

if TYPE_CHECKING:
    from zoo.mixers import MixerLayer
    from zoo.spec import ModelSpec


class Plain(CacheKind):
    """Numbers unchanged, in the cache's dtype; a layer with a window keeps only the window (the rolling buffer of
    Mistral 7B, arXiv:2310.06825)."""

    kind: Literal["plain"] = "plain"

    def check(self, model: ModelSpec) -> None:
        """Never raises: the plain cache serves every model."""

    def store_tokens(self, tokens: TokenCache, mixer: MixerLayer) -> TokenCache:
        return tokens

    def token_bytes(self, shapes: Sequence[tuple[int, int]], slots: int, rolling: bool, size: int) -> int:
        return size * slots * sum(heads * features for heads, features in shapes)
