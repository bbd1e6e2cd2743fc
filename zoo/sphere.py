"""Matrices made of unit vectors."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo.init import Embedding, ExpertLinear, Linear


@torch.no_grad()
def project(model: nn.Module) -> None:
    """Divide, in place, every vector that a matrix reads the stream with or writes to it by its length, and every row
    of tables and heads. Loshchilov et al. 2024 (nGPT), arXiv:2410.01131.

    A matrix (out, in) that writes has such a vector in each column, any other in each row.
    """
    for module in model.modules():
        if isinstance(module, Linear | ExpertLinear | Embedding):
            across = -2 if module.roles["weight"] == "output" else -1
            module.weight.copy_(F.normalize(module.weight, dim=across))
