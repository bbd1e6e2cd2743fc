"""Post-norm."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals import MakeNorm, ResidualLayer
from zoo.residuals._plain import Placed, PlacedLayer
from zoo.settings.axis import is_off
from zoo.settings.field_tags import Supports
from zoo.site import LayerSite


class Post(Placed):
    """y = norm(x + f(x)). Vaswani et al. 2017, arXiv:1706.03762.

    With `norm_in`, y = norm₂(x + f(norm₁(x))), the sandwich of Geiping et al. 2025 (Huginn), arXiv:2502.05171 §3.2.
    """

    kind: Literal["post"] = "post"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_after"})
    normalises_stream: ClassVar[bool] = True
    additive: ClassVar[bool] = False
    norm_in: Annotated[bool, Field(exclude_if=is_off), Supports(*EVERY_OPERATION)] = False
    """Whether the branch's input is also normalised."""

    @property
    def norms(self) -> int:
        return 1 + self.norm_in

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        places = self.places | {"norm_in"} if self.norm_in else self.places
        return PlacedLayer(places, norm, self.stream_scale, self.branch_scale)
