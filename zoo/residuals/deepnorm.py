"""DeepNorm."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals import MakeNorm, ResidualLayer
from zoo.residuals.placed import Placed, PlacedLayer
from zoo.site import LayerSite


class Constants(NamedTuple):
    """alpha: factor on the stream. beta: factor on the initial standard deviation of the branch's matrices."""

    alpha: float
    beta: float


def decoder_only(layers: int) -> Constants:
    """α = (2M)^¼, β = (8M)^−¼ for M layers, also for encoder-only models."""
    return Constants((2 * layers) ** 0.25, (8 * layers) ** -0.25)


def encoder_decoder(encoder: int, decoder: int) -> tuple[Constants, Constants]:
    """Constants of an encoder of N layers, α = 0.81 (N⁴M)^(1/16), β = 0.87 (N⁴M)^(−1/16), and of a decoder of M layers,
    α = (3M)^¼, β = (12M)^−¼."""
    both = (encoder**4 * decoder) ** (1 / 16)
    return Constants(0.81 * both, 0.87 / both), Constants((3 * decoder) ** 0.25, (12 * decoder) ** -0.25)


def constants(site: LayerSite) -> Constants:
    """Constants of the stack that contains the site."""
    if not site.other_layers:
        return decoder_only(site.n_layers)
    if site.encodes:
        return encoder_decoder(site.n_layers, site.other_layers)[0]
    return encoder_decoder(site.other_layers, site.n_layers)[1]


class DeepNorm(Placed):
    """y = norm(α x + f(x)), with the initial FFN, V and output matrices scaled by β. Wang et al. 2022,
    arXiv:2203.00555.

    α multiplies the stream, not the branch. The paper's Xavier initialisation with gain β is a standard deviation of
    β/√fan_in here, which is the same for square matrices.
    """

    kind: Literal["deepnorm"] = "deepnorm"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_after"})
    normalises_stream: ClassVar[bool] = True
    additive: ClassVar[bool] = False

    def build(self, norm: MakeNorm, site: LayerSite) -> ResidualLayer:
        alpha = constants(site).alpha
        return PlacedLayer(self.places, norm, self.stream_scale * alpha, self.branch_scale)

    def init_gain(self, site: LayerSite) -> float | None:
        return constants(site).beta
