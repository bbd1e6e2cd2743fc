"""Residuals that differ only in the placement of their norms."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.site import LayerSite


class Placed(Residual):
    """y = norm_after(s·x + b·norm_out(f(norm_in(x)))), with a subset of the three norms; s is `stream_scale`, b
    `branch_scale`."""

    adds: ClassVar[bool] = True
    places: ClassVar[frozenset[str]]
    """Subset of `norm_in`, `norm_out` and `norm_after`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        cls.norms_per_branch = len(getattr(cls, "places", ()))

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        return PlacedLayer(self.places, norm, self.stream_scale, self.branch_scale)


class PlacedLayer(ResidualLayer):
    """Stream and branch → stream. Norms outside the subset are skipped, and so is a scale of 1."""

    def __init__(self, places: frozenset[str], norm: MakeNorm, stream_scale: float, branch_scale: float) -> None:
        super().__init__()
        self.places = places
        self.norm_in = norm() if "norm_in" in places else nn.Identity()
        self.norm_out = norm() if "norm_out" in places else nn.Identity()
        self.norm_after = norm() if "norm_after" in places else nn.Identity()
        self.stream_scale = stream_scale
        self.branch_scale = branch_scale

    def update(self, x: Tensor, branch: Branch) -> Tensor:
        out = branch(self.norm_in(x) if "norm_in" in self.places else x)
        if "norm_out" in self.places:
            out = self.norm_out(out)
        return out if self.branch_scale == 1 else out * self.branch_scale

    def join(self, x: Tensor, update: Tensor) -> Tensor:
        out = (x if self.stream_scale == 1 else x * self.stream_scale) + update
        return self.norm_after(out) if "norm_after" in self.places else out
