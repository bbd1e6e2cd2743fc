"""GLU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import GATED, Activation, OtherActivation
from zoo.ffns._dense import Gated


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
