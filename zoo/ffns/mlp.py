"""Ungated feed-forward layer with an activation that has no kind of its own."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.ffns._activations import UNGATED, Activation, OtherActivation
from zoo.ffns._dense import Dense


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
