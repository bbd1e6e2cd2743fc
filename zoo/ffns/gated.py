"""Gated feed-forward layers, which differ in the activation of their gate."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import GATED, Activation, Approximation, OtherActivation, approximated
from zoo.ffns._dense import Gated
from zoo.settings.axis import Examples


class GLU(Gated):
    """y = W_down (σ(W_gate x) ⊙ W_up x). Dauphin et al. 2017, arXiv:1612.08083; Shazeer 2020, arXiv:2002.05202.

    `activation` replaces σ: `linear` is Shazeer's bilinear layer. ReGLU, GEGLU and SwiGLU are kinds of their own.
    """

    kind: Literal["glu"] = "glu"
    supports: ClassVar[Operations] = EVERY_OPERATION
    activation: Literal["sigmoid", "relu2", OtherActivation] = Field(
        default="sigmoid", exclude_if=lambda name: name == "sigmoid"
    )
    """Activation of the gate W_gate x; `linear` makes the layer bilinear."""

    def hidden(self) -> Activation:
        return GATED["glu" if self.activation == "sigmoid" else f"glu_{self.activation}"]


class ReGLU(Gated):
    """y = W_down (max(0, W_gate x) ⊙ W_up x). Shazeer 2020, arXiv:2002.05202."""

    kind: Literal["reglu"] = "reglu"
    supports: ClassVar[Operations] = EVERY_OPERATION


class GEGLU(Gated):
    """y = W_down (GELU(W_gate x) ⊙ W_up x). Shazeer 2020, arXiv:2002.05202.

    T5 v1.1 and Gemma use the tanh approximation of GELU.
    """

    examples: ClassVar[Examples] = ({}, {"approximate": "tanh"})
    kind: Literal["geglu"] = "geglu"
    supports: ClassVar[Operations] = EVERY_OPERATION
    approximate: Approximation = "none"
    """Form of GELU: `none`, z·Φ(z); `tanh`, its tanh approximation; `sigmoid`, z·σ(1.702z)."""

    def hidden(self) -> Activation:
        return GATED[approximated("geglu", self.approximate)]


class SwiGLU(Gated):
    """y = W_down (SiLU(W_gate x) ⊙ W_up x). Shazeer 2020, arXiv:2002.05202."""

    kind: Literal["swiglu"] = "swiglu"
    supports: ClassVar[Operations] = EVERY_OPERATION
