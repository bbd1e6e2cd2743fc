"""Features of a block, in addition to its mixer and its FFN. One file per feature."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from zoo.compatibility.traits import ALL, Grounds
from zoo.settings.axis import Spec
from zoo.site import PartCost

Place = Literal["mixer", "ffn"]


class BlockFeature(Spec):
    """Spec of a feature. Subclasses must declare `needs`, `breaks` and `supports`, as those of `zoo.features` do."""

    needs: ClassVar[Grounds] = ALL
    """Grounds that it relies on."""
    breaks: ClassVar[Grounds] = ALL
    """Grounds that other parts cannot rely on alongside it."""

    def cost(self, d_model: int, norm: int) -> PartCost:
        """Cost for each token that the block runs on. norm: parameters of one of the block's norms."""
        return PartCost(0)

    def cost_around(self, d_model: int) -> PartCost:
        """Cost for each token that reaches the block, whether or not the block runs on it."""
        return PartCost(0)

    def cache_elements(self, d_model: int) -> int:
        """Cache elements per sequence."""
        return 0


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
