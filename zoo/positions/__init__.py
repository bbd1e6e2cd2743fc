"""Position schemes: one file per scheme.

A scheme acts in one or more of three places: it is added to the embedded tokens (absolute), it turns queries and keys
(rotary), or it is added to the scores (bias).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from zoo.settings.axis import Variant
from zoo.site import ForwardPass, Keys, PartCost


class Position(Variant):
    """Builds what a layer does with positions, and what the model holds for all layers that share the scheme."""

    absolute: ClassVar[bool] = False
    """Whether the scheme is added to the embedded tokens, once for the model, if any layer asks for it."""

    adds_to_scores: ClassVar[bool] = False
    """Whether its layer has a `bias`, which mixers without scores of single keys cannot take."""

    reads_queries: ClassVar[bool] = False
    """Whether what it adds to scores is made of the queries, which only mixers that say so hand to it."""

    takes_places: ClassVar[bool] = True
    """Whether tokens may be told where they are; otherwise they are where they stand in the stream."""

    @property
    def longest(self) -> int | None:
        """The most tokens that a text may have; None for any number."""
        return None

    @property
    def by_length(self) -> bool:
        """Whether a token's position means something else in a longer text: then padding changes what is computed."""
        return False

    @property
    def score_factor(self) -> float:
        """Factor on the mixer's own score scale, 1/√d; a scale that the spec gives stands as it is."""
        return 1.0

    @abstractmethod
    def build(self, head_dim: int, heads: int) -> PositionLayer:
        """A layer's part, for heads of `head_dim` features."""

    def check(self, head_dim: int) -> None:
        """Raise SpecError where the scheme cannot serve heads of this size."""

    def check_ahead(self) -> None:
        """Raise SpecError where the scheme has no meaning for a query and a key that comes after it."""

    def layer_cost(self, head_dim: int, heads: int, keys: Keys) -> PartCost:
        """Parameters of a layer's part and what it takes of each token, for so many keys of a query."""
        return PartCost(0)

    def pass_flops(self, head_dim: int, heads: int, distances: int) -> float:
        """FLOPs of a layer's part in a forward pass that do not depend on its number of rows."""
        return 0.0

    def build_shared(self, d_model: int, heads: int) -> nn.Module | None:
        """The model's part. For an absolute scheme: step → (T, D) or (B, T, D) to add to the embedded tokens."""
        return None

    def name_for(self, heads: int) -> str:
        """Key of the model's shared part for `heads` heads in a pass. torch.compile cannot trace the hash of a spec."""
        return f"{self!r} for {heads} heads"

    def shared_parameters(self, d_model: int, heads: int) -> int:
        """Parameters of the model's part."""
        return 0


class Queries(NamedTuple):
    """Inputs of a scheme that `reads_queries`. q: (B, H, T, d), with positions applied; the factor on QKᵀ; how many
    keys a query sees, None for all up to its own."""

    q: Tensor
    scale: float
    window: int | None


class PositionLayer(nn.Module):
    """Does nothing, which is NoPE; schemes override what they need."""

    def rotate_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        """q: (B, H, T, d) → the same shape, with positions applied."""
        return q

    def rotate_keys(self, k: Tensor, step: ForwardPass) -> Tensor:
        """k: (B, K, T, d) → the same shape, with positions applied."""
        return k

    def moved(self, k: Tensor, by: int) -> Tensor:
        """k: (B, K, T, d) with positions applied → what it would be `by` places further on."""
        return k

    def bias(self, step: ForwardPass, places: Tensor) -> Tensor | None:
        """Bias on the scores of the step's queries for keys at `places` (S,): what broadcasts to
        (H, T, S) or (B, H, T, S), or None."""
        return None

    def bias_for(self, queries: Queries, step: ForwardPass, places: Tensor) -> Tensor | None:
        """The same, from a mixer that hands over its queries."""
        return self.bias(step, places)


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
