"""Skips from the lower half of the layers to the upper half."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn


class UNetSkips(nn.Module):
    """x_{L−1−i} ← x_{L−1−i} + w_i y_i for i < ⌊L/2⌋: a layer of the upper half reads what left its mirror image in the
    lower half too. Jordan et al. 2024 (modded-nanogpt), https://github.com/KellerJordan/modded-nanogpt, after U-Net
    (Ronneberger et al. 2015, arXiv:1505.04597).

    x_l: (B, T, D) enters layer l, y_l leaves it; w = 1 at the start. With an even number of layers the lowest of the
    upper half reads y of the layer right below it, twice, as published.
    """

    roles: ClassVar = {"weights": "gain"}

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.weights = nn.Parameter(torch.ones(skips_of(n_layers)))

    def forward(self, x: Tensor, layer: int, left: dict[int, Tensor]) -> Tensor:
        """The stream as it enters a layer. left: what left the layers of the lower half, each until it is read."""
        if 0 < layer <= len(self.weights):
            left[layer - 1] = x
        mirror = self.n_layers - 1 - layer
        return x + self.weights[mirror] * left.pop(mirror) if mirror in left and layer > mirror else x


def skips_of(n_layers: int) -> int:
    """⌊L/2⌋."""
    return n_layers // 2
