"""Projection of weights to unit vectors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo.init import Embedding, ExpertLinear, Linear


@torch.no_grad()
def project(model: nn.Module) -> None:
    """Normalise in place the columns of matrices (out, in) that write to the stream, and the rows of all other
    matrices, tables and heads. Loshchilov et al. 2024 (nGPT), arXiv:2410.01131.
    """
    for module in model.modules():
        if isinstance(module, Linear | ExpertLinear | Embedding):
            across = -2 if module.roles["weight"] == "output" else -1
            module.weight.copy_(F.normalize(module.weight, dim=across))
