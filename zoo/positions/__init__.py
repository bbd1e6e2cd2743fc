"""Position schemes: one file per scheme.

A scheme acts in one or more of three places: it is added to the embedded tokens (absolute), it changes queries and keys
(rotary), or it is added to the attention scores (bias).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from zoo.settings.axis import Variant
from zoo.site import ForwardPass, Keys, PartCost


class Position(Variant):
    """Builds a layer's position module, and the module that all layers of the model with this scheme share."""

    absolute: ClassVar[bool] = False
    """Whether the scheme is added to the embedded tokens, once per model, if any layer has it."""

    adds_to_scores: ClassVar[bool] = False
    """Whether its layer adds a `bias` to scores. Mixers without a score per key cannot take one."""

    reads_queries: ClassVar[bool] = False
    """Whether the bias depends on the queries. Only mixers that declare it pass them."""

    takes_places: ClassVar[bool] = True
    """Whether callers may pass positions (`places`); if not, positions are always those of the stream."""

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens in a text; None for no limit."""
        return None

    @property
    def by_length(self) -> bool:
        """Whether the encoding of a position depends on the text's length, so that padding changes the result."""
        return False

    @property
    def score_factor(self) -> float:
        """Factor on the mixer's default score scale, 1/√d. A scale set in the spec is not multiplied."""
        return 1.0

    @abstractmethod
    def build(self, head_dim: int, heads: int) -> PositionLayer:
        """A layer's position module, for `heads` heads of `head_dim` features."""

    def check(self, head_dim: int) -> None:
        """Raise SpecError if the scheme does not fit heads of this size."""

    def check_ahead(self) -> None:
        """Raise SpecError if the scheme is undefined for keys after the query."""

    def layer_cost(self, head_dim: int, heads: int, keys: Keys) -> PartCost:
        """Parameters of a layer's part and its cost per token. keys: mean keys per query."""
        return PartCost(0)

    def pass_flops(self, head_dim: int, heads: int, distances: int) -> float:
        """FLOPs of a layer's part per forward pass, independent of the batch size. distances: their number."""
        return 0.0

    def build_shared(self, d_model: int, heads: int) -> nn.Module | None:
        """The model's shared part. Absolute schemes: step → (T, D) or (B, T, D), added to the embedded tokens."""
        return None

    def name_for(self, heads: int) -> str:
        """Key of the shared part for `heads` heads. A string, since torch.compile cannot trace the hash of a spec."""
        return f"{self!r} for {heads} heads"

    def shared_parameters(self, d_model: int, heads: int) -> int:
        """Parameters of the model's shared part."""
        return 0


class Queries(NamedTuple):
    """Inputs of a scheme that `reads_queries`. q: (B, H, T, d), with positions applied. scale: factor on QKᵀ. window:
    maximum number of keys that a query sees, its own included; None for all up to its own."""

    q: Tensor
    scale: float
    window: int | None


class PositionLayer(nn.Module):
    """Position module of a layer. The base class does nothing (NoPE); schemes override what they need."""

    rotates_alike: ClassVar[bool] = False
    """Whether `rotate_queries` and `rotate_keys` are the same function of each head: one call can serve both."""

    def rotate_queries(self, q: Tensor, step: ForwardPass) -> Tensor:
        """q: (B, H, T, d) → the same shape, with positions applied."""
        return q

    def rotate_keys(self, k: Tensor, step: ForwardPass) -> Tensor:
        """k: (B, K, T, d) → the same shape, with positions applied."""
        return k

    def moved(self, k: Tensor, by: int) -> Tensor:
        """k: (B, K, T, d) with positions applied → the same keys `by` positions later."""
        return k

    def bias(self, step: ForwardPass, places: Tensor) -> Tensor | None:
        """Bias on the scores of the step's queries for keys at `places` (S,); broadcasts to (H, T, S) or (B, H, T, S).
        None for no bias."""
        return None

    def bias_for(self, queries: Queries, step: ForwardPass, places: Tensor) -> Tensor | None:
        """`bias` for a mixer that passes its queries."""
        return self.bias(step, places)


P = TypeVar("P", bound=Position)


class BiasLayer(PositionLayer, Generic[P]):
    """A bias computed once per pass for all layers with the same scheme, heads and keys."""

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
        """places: (S,) → bias that broadcasts to (H, T, S) or (B, H, T, S)."""
