"""A loop over shared layers that reads its input in every turn."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.init import Linear
from zoo.residuals import MakeNorm
from zoo.sharing import Sharing


class Loop(nn.Module):
    """x ← layers(W [x; e]), again and again, with e the stream that leaves the prelude; norm(x) enters the coda.
    Geiping et al. 2025 (Huginn), arXiv:2502.05171 §3.2.

    x, e: (B, T, D), W: (2D, D). The first x is drawn for every token from N(0, σ²) while training, and zero otherwise:
    the paper draws it then too, and a token that is decoded could not be what it is in one pass over the text. Without
    a coda the model's final norm takes the place of the norm; the paper's are one and the same.

    Turns are as many as the model's layers are, or a random number while training (`zoo.random_depth`).
    """

    def __init__(self, sharing: Sharing, norm: MakeNorm, d_model: int, n_layers: int) -> None:
        super().__init__()
        self.turns, self.std, self.depth = sharing.turns(n_layers), sharing.state_std, sharing.random_depth
        self.adapter = Linear(2 * d_model, d_model, role="input")
        self.norm = norm() if sharing.coda else None

    def forward(self, x: Tensor, layer: int, read: list[Tensor]) -> Tensor:
        """The stream as it enters a layer: (B, T, D) → the same. read: e, from the first turn on."""
        if layer == self.turns.start:
            read.append(x)
            x = self.begin(x)
        if layer in self.turns:
            return self.turn(x, read[0])
        return self.end(x) if layer == self.turns.stop else x

    def begin(self, e: Tensor) -> Tensor:
        """The first x."""
        return torch.randn_like(e) * self.std if self.training and self.std else torch.zeros_like(e)

    def turn(self, x: Tensor, e: Tensor) -> Tensor:
        """What the layers of a turn read."""
        out: Tensor = self.adapter(torch.cat((x, e), dim=-1))
        return out

    def end(self, x: Tensor) -> Tensor:
        """What enters the coda."""
        return x if self.norm is None else self.norm(x)
