"""GEGLU feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import GATED, Activation, Approximation, approximated
from zoo.ffns._dense import Gated
from zoo.settings.axis import Examples


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
