"""Connections of a branch (mixer or FFN) to the residual stream: one file per placement of the norms."""

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
    """Builds the module that wraps one branch with its norms and its shortcut."""

    norms_per_branch: ClassVar[int]
    normalises_stream: ClassVar[bool] = False
    """Whether the stream leaves the block normalised, so that the model needs no final norm."""
    normalises_embedding: ClassVar[bool] = False
    """Whether the stream is normalised before the first block."""
    normalises_branch: ClassVar[bool] = True
    """Whether branches read what is normed, by the block's norm or otherwise."""
    additive: ClassVar[bool] = True
    """Whether the branch's update is added to the stream and nothing follows, so that two updates can be summed."""

    closes_with_norms: ClassVar[bool] = False
    """Whether `build_close` makes norms of the model's kind, which is then part of what a model is."""
    numbers_layers: ClassVar[bool] = False
    """Whether what it does depends on which of the stack's layers it is at, each of which must have the same."""

    adds: ClassVar[bool] = False
    """Whether its stream is the last one plus the branch's update, so that the branch alone is a stream as well."""

    stream_scale: Annotated[NonNegativeFloat, ValuesInTests(1.25)] = 1.0
    """Multiplier of the stream at every shortcut; 0 for no shortcuts."""
    branch_scale: Annotated[PositiveFloat, ValuesInTests(0.5)] = 1.0
    """Multiplier of every branch's update (Granite's residual multiplier)."""

    @model_validator(mode="after")
    def _keeps_its_stream(self) -> Self:
        if self.stream_scale == 0 and not self.adds:
            raise SpecError("stream_scale", f"{self.kind} mixes what the stream holds, of which 0 would leave nothing")
        return self

    @property
    def streams(self) -> int | None:
        """n where the stream is (B, T, n, D), also for n = 1; None where it is (B, T, D)."""
        return None

    @property
    def needs(self) -> Grounds:
        """Grounds that it relies on."""
        counted = {Ground.ONE_STACK, Ground.OWN_WEIGHTS, Ground.ONE_END}
        return frozenset(counted) if self.numbers_layers else NONE

    @property
    def breaks(self) -> Grounds:
        """Grounds that others cannot rely on beside it."""
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
        """`norm()` makes a fresh norm over D."""

    def extra_cost(self, d_model: int) -> PartCost:
        """Per branch and token: what the residual costs beyond its norms."""
        return PartCost(0)

    def init_gain(self, site: LayerSite) -> float | None:
        """Standard deviation of the FFN's, V's and output projections, times √fan_in; None for the model's own rule."""
        return None

    @property
    def init_output_factor(self) -> float:
        """Factor on the initial standard deviation of projections that write to the stream."""
        return 1.0

    def open(self, x: Tensor) -> Tensor:
        """(B, T, D) embedded tokens → the stream that the blocks read and write: copies of them where it is several."""
        return x if self.streams is None else x[..., None, :].expand(*x.shape[:-1], self.streams, x.shape[-1])

    def build_close(self, norm: MakeNorm, d_model: int, n_layers: int) -> nn.Module | None:
        """Module that closes the stream in place of `close`, where that has parameters; None where it has none."""
        return None

    def depth_cost(self, d_model: int, norm: int, branches: Sequence[Sequence[int]]) -> PartCost:
        """Per token, what all residuals of a model and `build_close` cost beyond `extra_cost`. norm: parameters of one.
        branches: the numbers of each layer's residuals, as `LayerSite.nth` has them."""
        return PartCost(0)

    def close(self, x: Tensor) -> Tensor:
        """The stream → (B, T, D) for the final norm and the head: the sum where it is several."""
        return x if self.streams is None else x.sum(dim=-2)


class ResidualLayer(nn.Module, ABC):
    """Stream and branch → stream. A branch maps (B, T, D) → (B, T, D)."""

    @abstractmethod
    def update(self, x: Tensor, branch: Branch) -> Tensor:
        """Update that the branch adds to the stream."""

    @abstractmethod
    def join(self, x: Tensor, update: Tensor) -> Tensor:
        """The stream with an update."""

    def forward(self, x: Tensor, branch: Branch) -> Tensor:
        return self.join(x, self.update(x, branch))
