"""Features of a block, in addition to its mixer and its FFN. One file per feature, or a plug-in.

A feature is a setting of the block, named after its file. It declares what `zoo.features` do, and builds a
`BlockFeatureLayer`, which acts on the input of the branches and on the stream after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, Protocol

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import ALL, Grounds
from zoo.errors import SpecError
from zoo.ffns import Ffn
from zoo.mixers import Mixer
from zoo.residuals import Residual
from zoo.settings.axis import Examples, Spec
from zoo.site import ForwardPass, PartCost

Place = Literal["mixer", "ffn"]


class Parts(Protocol):
    """Parts of a block that its features may read."""

    @property
    def norm_placement(self) -> Residual: ...
    @property
    def mixer(self) -> Mixer: ...
    @property
    def ffn(self) -> Ffn: ...
    @property
    def topology(self) -> str: ...


class BlockFeature(Spec):
    """Spec of a feature. Subclasses must declare `needs`, `breaks` and `supports`, as those of `zoo.features` do."""

    examples: ClassVar[Examples] = ({},)
    """Settings with which tests combine a plug-in with all other choices, in a model of d_model 24."""
    needs: ClassVar[Grounds] = ALL
    """Grounds that it relies on."""
    breaks: ClassVar[Grounds] = ALL
    """Grounds that other parts cannot rely on alongside it."""
    reaches_back: ClassVar[bool] = False
    """Whether a token's output depends on earlier tokens, which only causal models can have."""

    def check(self, block: Parts) -> None:
        """Feature-specific compatibility check. Raises SpecError if the block cannot have the feature."""

    def build(self, d_model: int, norm: Callable[[], nn.Module]) -> BlockFeatureLayer | None:
        """The feature's part of the block; None if it has none of this kind. norm: makes a norm of the block's kind."""
        return None

    def cost(self, d_model: int, norm: int) -> PartCost:
        """Cost for each token that the block runs on. norm: parameters of one of the block's norms."""
        return PartCost(0)

    def cost_around(self, d_model: int) -> PartCost:
        """Cost for each token that reaches the block, whether or not the block runs on it."""
        return PartCost(0)

    def cache_elements(self, d_model: int) -> int:
        """Cache elements per sequence."""
        return 0


class BlockFeatureLayer(nn.Module):
    """A part of a block. Methods that a subclass does not override change nothing."""

    name: ClassVar[str]
    """Name of the module in the block and in its state dict."""
    order: ClassVar[int] = 10
    """Features with a smaller number act first."""

    def before(self, branch: Place, h: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        """The input of a branch (B, T, D) as the branch reads it. cache: the one that `new_cache` made."""
        return h

    def after(self, branch: Place, x: Tensor, h: Tensor) -> Tensor:
        """The stream after a branch's residual connection. h: (B, T, D), what the branch read, before `before`. Needs
        topology `serial`."""
        return x

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache | None:
        """The layer's empty cache for `batch` rows; None if it keeps no state."""
        return None


class BeforeBranches(BlockFeature):
    """Spec of a feature that changes the inputs of branches."""

    before: Annotated[tuple[Place, ...], Field(strict=False)] = ("mixer", "ffn")
    """Branches whose input it changes: `mixer`, `ffn`."""

    @field_validator("before")
    @classmethod
    def _somewhere(cls, before: tuple[Place, ...]) -> tuple[Place, ...]:
        if not before:
            raise ValueError("must name a branch; to switch the feature off, leave it out")
        return before

    def check(self, block: Parts) -> None:
        for name, part, other in (("mixer", block.mixer, "ffn"), ("ffn", block.ffn, "mixer")):
            if part.absent and name in self.before:
                raise SpecError("before", f"the block has no {name}; use before: [{other}]")
