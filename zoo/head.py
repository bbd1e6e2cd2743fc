"""Transform that some models apply between the last block and the head."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear


class HeadTransform(nn.Module):
    """norm(act(W x + b)), of the width of the stream. BERT's, Devlin et al. 2018, arXiv:1810.04805. x: (..., D)."""

    def __init__(self, d_model: int, activation: PlainActivation, norm: nn.Module) -> None:
        super().__init__()
        self.activation = UNGATED[activation]
        self.dense = Linear(d_model, d_model, bias=True, role="input")
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out
