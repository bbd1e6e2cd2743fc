"""Pre-norm whose shortcut carries the normalised stream."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals import Branch, MakeNorm, ResidualLayer
from zoo.residuals._plain import Placed, PlacedLayer
from zoo.site import LayerSite


class Normed(Placed):
    """y = h + f(h), h = norm(x). An option of BLOOM (`apply_residual_connection_post_layernorm`), arXiv:2211.05100,
    after Megatron-LM, arXiv:1909.08053."""

    kind: Literal["normed"] = "normed"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in"})
    additive: ClassVar[bool] = False

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return NormedLayer(self.places, norm, self.stream_scale, self.branch_scale)


class NormedLayer(PlacedLayer):
    """Computes the norm once, for both the branch and the shortcut."""

    def forward(self, x: Tensor, branch: Branch) -> Tensor:
        h: Tensor = self.norm_in(x)
        update = branch(h)
        return self.join(h, update if self.branch_scale == 1 else update * self.branch_scale)
