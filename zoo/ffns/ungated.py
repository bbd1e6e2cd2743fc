"""Ungated feed-forward layers, which differ in their activation."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import UNGATED, Activation, Approximation, OtherActivation, approximated
from zoo.ffns._dense import Dense


class ReLU(Dense):
    """y = W_down max(0, W_up x). Vaswani et al. 2017, arXiv:1706.03762."""

    kind: Literal["relu"] = "relu"
    supports: ClassVar[Operations] = EVERY_OPERATION


class SquaredReLU(Dense):
    """y = W_down max(0, W_up x)². So et al. 2021 (Primer), arXiv:2109.08668; Nemotron-4, arXiv:2402.16819."""

    kind: Literal["relu2"] = "relu2"
    supports: ClassVar[Operations] = EVERY_OPERATION


class GELU(Dense):
    """y = W_down GELU(W_up x), with GELU(z) = z·Φ(z). Hendrycks & Gimpel 2016, arXiv:1606.08415.

    GPT-2 and its derivatives use the tanh approximation.
    """

    kind: Literal["gelu"] = "gelu"
    supports: ClassVar[Operations] = EVERY_OPERATION
    approximate: Approximation = "none"
    """Form of GELU: `none`, z·Φ(z); `tanh`, its tanh approximation; `sigmoid`, z·σ(1.702z)."""

    def hidden(self) -> Activation:
        return UNGATED[approximated("gelu", self.approximate)]


class SiLU(Dense):
    """y = W_down (z·σ(z)), z = W_up x. Ramachandran et al. 2017, arXiv:1710.05941."""

    kind: Literal["silu"] = "silu"
    supports: ClassVar[Operations] = EVERY_OPERATION


class ELU(Dense):
    """y = W_down ELU(W_up x), with ELU(z) = z for z > 0 and e^z − 1 below. Clevert et al. 2015, arXiv:1511.07289."""

    paired_examples: ClassVar[int | None] = 0
    kind: Literal["elu"] = "elu"
    supports: ClassVar[Operations] = EVERY_OPERATION


class MLP(Dense):
    """y = W_down tanh(W_up x). Bengio et al. 2003, https://www.jmlr.org/papers/v3/bengio03a.html.

    `activation` replaces tanh. ReLU, squared ReLU, GELU, SiLU and ELU are kinds of their own.
    """

    kind: Literal["mlp"] = "mlp"
    supports: ClassVar[Operations] = EVERY_OPERATION
    activation: Literal["sigmoid", OtherActivation] = "tanh"
    """Activation of the hidden features W_up x."""

    def hidden(self) -> Activation:
        return UNGATED[self.activation]
