"""Feed-forward layers, which act on each token separately. One file per variant."""

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
    """Whether the block has no FFN branch, hence no residual and no norm for it."""
    sees_text: ClassVar[bool] = False
    """Whether a token's output depends on all other tokens of the text, later ones included."""
    reads_tokens: ClassVar[bool] = False
    """Whether it reads token ids."""

    def resolve(self, d_model: int) -> Self:
        """This spec with ratios to d_model replaced by numbers. Raises SpecError if it cannot be built."""
        return self

    @abstractmethod
    def build(self, site: LayerSite) -> FfnLayer:
        """The module. Called on a resolved spec."""

    @abstractmethod
    def cost(self, d_model: int) -> PartCost:
        """Cost per token of a forward pass. Called on a resolved spec."""

    def cost_at(self, d_model: int, context: int) -> PartCost:
        """Cost per token in texts of `context` tokens, if it depends on that. Called on a resolved spec."""
        return self.cost(d_model)

    def check_causal(self) -> None:
        """Raise SpecError if later tokens affect earlier ones, which only encoders allow."""

    def dropped_flops(self, d_model: int) -> float:
        """FLOPs per token that `cost` declares but a training pass drops. Called on a resolved spec."""
        return 0.0

    @property
    def couples_rows(self) -> str | None:
        """Reason why training on one row of a batch depends on the other rows; None if rows are independent."""
        return None

    @property
    def reaches_back(self) -> bool:
        """Whether it reads earlier tokens."""
        return False

    def cache_elements(self, d_model: int) -> int:
        """Numbers cached per sequence. Called on a resolved spec."""
        return 0

    def parameters_read(self, d_model: int, tokens: int) -> float:
        """Expected number of parameters that a pass over `tokens` tokens uses. Called on a resolved spec."""
        return self.cost(d_model).parameters


class FfnLayer(nn.Module, ABC):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, conv: ShortConv | None = None) -> None:
        """conv: causal convolution of the hidden features; None for none."""
        super().__init__()
        self.conv = conv

    @abstractmethod
    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, D) → (B, T, D). cache: state of earlier tokens. Auxiliary losses are appended to `step.losses`."""

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache | None:
        """An empty cache for `batch` rows; None if the layer reads no earlier tokens."""
        return None if self.conv is None else self.conv.new_cache(batch, dtype)
