"""Residual connections between a branch (mixer or FFN) and the stream. One file per variant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor, nn

from zoo.compatibility.traits import NONE, Ground, Grounds
from zoo.errors import SpecError
from zoo.settings.axis import Variant
from zoo.settings.field_tags import ValuesInTests
from zoo.site import LayerSite, PartCost

Branch = Callable[[Tensor], Tensor]
MakeNorm = Callable[[], nn.Module]


class Residual(Variant):
    """Builds the module that wraps one branch in its norms and its shortcut."""

    norms_per_branch: ClassVar[int]
    normalises_stream: ClassVar[bool] = False
    """Whether the block's output stream is normalised, so that the model needs no final norm."""
    normalises_embedding: ClassVar[bool] = False
    """Whether the stream is normalised before the first block."""
    normalises_branch: ClassVar[bool] = True
    """Whether branches read a normalised input, by the block's norm or otherwise."""
    additive: ClassVar[bool] = True
    """Whether the branch's update is added to the stream and nothing follows, so that two updates can be summed."""

    closes_with_norms: ClassVar[bool] = False
    """Whether `build_close` builds norms of the model's kind, which then belongs to the model's identity."""
    numbers_layers: ClassVar[bool] = False
    """Whether its computation depends on the layer's index in the stack. All layers must then have this residual."""

    adds: ClassVar[bool] = False
    """Whether the new stream is the old one plus the branch's update, so that `stream_scale` can be 0."""

    stream_scale: Annotated[NonNegativeFloat, ValuesInTests(1.25)] = 1.0
    """Multiplier of the stream at every shortcut; 0 removes the shortcuts."""
    branch_scale: Annotated[PositiveFloat, ValuesInTests(0.5)] = 1.0
    """Multiplier of every branch's update (Granite's residual multiplier)."""

    @model_validator(mode="after")
    def _keeps_its_stream(self) -> Self:
        if self.stream_scale == 0 and not self.adds:
            raise SpecError("stream_scale", f"must not be 0 with {self.kind}: it would erase the stream")
        return self

    @property
    def streams(self) -> int | None:
        """n if the stream is (B, T, n, D), also for n = 1; None if it is (B, T, D)."""
        return None

    @property
    def needs(self) -> Grounds:
        """Grounds that the residual relies on."""
        counted = {Ground.ONE_STACK, Ground.OWN_WEIGHTS, Ground.ONE_END}
        return frozenset(counted) if self.numbers_layers else NONE

    @property
    def breaks(self) -> Grounds:
        """Grounds that other parts cannot rely on beside it."""
        return NONE if self.streams is None else frozenset({Ground.PLAIN_STREAM, Ground.SINGLE_STREAM})

    @property
    def stream_shape(self) -> str:
        """Shape of the stream as text: `(B, T, D)`."""
        return "(B, T, D)" if self.streams is None else f"(B, T, {self.streams}, D)"

    @property
    def norms(self) -> int:
        """Number of norms per branch."""
        return self.norms_per_branch

    @abstractmethod
    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        """The module for a branch at `site`. `norm()` makes a new norm over D features."""

    def extra_cost(self, d_model: int) -> PartCost:
        """Cost of the residual beyond its norms, per branch and token."""
        return PartCost(0)

    def init_gain(self, site: LayerSite) -> float | None:
        """Initial standard deviation of the FFN, V and output projections, times √fan_in; None for the model's rule."""
        return None

    @property
    def init_output_factor(self) -> float:
        """Factor on the initial standard deviation of projections that write to the stream."""
        return 1.0

    def open(self, x: Tensor) -> Tensor:
        """Embedded tokens (B, T, D) → the stream that the blocks read and write; several streams start as copies."""
        return x if self.streams is None else x[..., None, :].expand(*x.shape[:-1], self.streams, x.shape[-1])

    def build_close(self, norm: MakeNorm, d_model: int, n_layers: int) -> nn.Module | None:
        """Module with parameters that replaces `close`; None to use `close`."""
        return None

    def depth_cost(self, d_model: int, norm: int, branches: Sequence[Sequence[int]]) -> PartCost:
        """Cost per token of all residuals of a model and of `build_close`, beyond `extra_cost`. norm: parameters of a
        norm. branches: for each layer, the `LayerSite.nth` of its residuals."""
        return PartCost(0)

    def close(self, x: Tensor) -> Tensor:
        """The stream → (B, T, D) for the final norm and the head; several streams are summed."""
        return x if self.streams is None else x.sum(dim=-2)


class ResidualLayer(nn.Module, ABC):
    """Stream and branch → stream. A branch maps (B, T, D) → (B, T, D)."""

    @abstractmethod
    def update(self, x: Tensor, branch: Branch) -> Tensor:
        """The branch's update of the stream."""

    @abstractmethod
    def join(self, x: Tensor, update: Tensor) -> Tensor:
        """The stream after an update."""

    def forward(self, x: Tensor, branch: Branch) -> Tensor:
        return self.join(x, self.update(x, branch))
