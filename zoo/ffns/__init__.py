"""Feed-forward layers: what happens to each token by itself. One file per variant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.conv import ShortConv
from zoo.settings.axis import Variant
from zoo.site import ForwardPass, LayerSite, PartCost


class Ffn(Variant):
    """Builds a module (x: (B, T, D), step) → (B, T, D) and declares what it costs."""

    absent: ClassVar[bool] = False
    """Whether the block has no residual, and so no norm, for it."""
    sees_text: ClassVar[bool] = False
    """Whether what it does to a token depends on all others of a text."""
    reads_tokens: ClassVar[bool] = False
    """Whether it reads the ids of tokens."""

    def resolve(self, d_model: int) -> Self:
        """The same layer with ratios turned into numbers. Raises SpecError for what cannot be built."""
        return self

    @abstractmethod
    def build(self, site: LayerSite) -> FfnLayer:
        """The module. Called on a resolved spec."""

    @abstractmethod
    def cost(self, d_model: int) -> PartCost:
        """Per token of a forward pass. Called on a resolved spec."""

    def cost_at(self, d_model: int, context: int) -> PartCost:
        """The same in texts of `context` tokens, where that matters. Called on a resolved spec."""
        return self.cost(d_model)

    def check_causal(self) -> None:
        """Raise SpecError where what comes after a token cannot be kept from it, as all but encoders ask."""

    def dropped_flops(self, d_model: int) -> float:
        """FLOPs per token that `cost` declares but a training pass drops. Called on a resolved spec."""
        return 0.0

    @property
    def couples_rows(self) -> str | None:
        """Reason why training on one row of a batch depends on the others; None where nothing does."""
        return None

    @property
    def reaches_back(self) -> bool:
        """Whether it sees tokens before its own."""
        return False

    def cache_elements(self, d_model: int) -> int:
        """Numbers kept per sequence. Called on a resolved spec."""
        return 0

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """Expected number of parameters that a pass over `tokens` tokens uses. Called on a resolved spec."""
        return self.cost(d_model).parameters


class FfnLayer(nn.Module, ABC):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, conv: ShortConv | None = None) -> None:
        """conv: of the hidden features, where there is one."""
        super().__init__()
        self.conv = conv

    @abstractmethod
    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        """Each token by itself, but for what the cache holds; auxiliary losses go to `step.losses`."""

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache | None:
        """An empty cache for `batch` rows; None where each token is by itself."""
        return None if self.conv is None else self.conv.new_cache(batch, dtype)
