"""Common code of schemes that add to the scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from zoo.positions import Position, PositionLayer
from zoo.site import ForwardPass

P = TypeVar("P", bound=Position)


class BiasLayer(PositionLayer, Generic[P]):
    """A bias that layers of the same scheme and heads compute once for all, where they see the same keys."""

    def __init__(self, spec: P, head_dim: int, heads: int) -> None:
        super().__init__()
        self.spec = spec
        self.head_dim = head_dim
        self.heads = heads
        self.key = f"{spec.name_for(heads)} of {head_dim}"

    def bias(self, step: ForwardPass, places: Tensor) -> Tensor:
        if places is not step.index:
            return self.compute(step, places)
        return step.once(self.key, lambda: self.compute(step, places))

    @abstractmethod
    def compute(self, step: ForwardPass, places: Tensor) -> Tensor:
        """places: (S,) → what broadcasts to (H, T, S) or (B, H, T, S)."""
