"""GELU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import UNGATED, Activation, Approximation, approximated
from zoo.ffns._dense import Dense


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
