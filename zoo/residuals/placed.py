"""Residuals that differ only in the placement of their norms."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals import Branch, MakeNorm, Residual, ResidualLayer
from zoo.settings.axis import is_off
from zoo.settings.field_tags import Supports
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


class Pre(Placed):
    """y = x + f(norm(x)). Radford et al. 2019 (GPT-2); Xiong et al. 2020, arXiv:2002.04745."""

    kind: Literal["pre"] = "pre"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in"})


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


class Output(Placed):
    """y = x + norm(f(x)). OLMo 2 (2025), arXiv:2501.00656; Swin v2, Liu et al. 2021, arXiv:2111.09883."""

    kind: Literal["output"] = "output"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_out"})


class Double(Placed):
    """y = x + norm₂(f(norm₁(x))). Gemma 2 (2024), arXiv:2408.00118; Grok-1; Ding et al. 2021, arXiv:2105.13290."""

    kind: Literal["double"] = "double"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in", "norm_out"})


class Peri(Placed):
    """y = x + norm₂(f(norm₁(x))), and a norm after the embedding. Kim et al. 2025, arXiv:2502.02732.

    Without the embedding norm it is `double`.
    """

    kind: Literal["peri"] = "peri"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in", "norm_out"})
    normalises_embedding: ClassVar[bool] = True


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
