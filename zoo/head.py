"""Parts of the head: the transform that some models apply first, and the product that gives logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.kernels.precision import computed_in
from zoo.kernels.tracing import device_type


class HeadTransform(nn.Module):
    """norm(act(W x + b)), as wide as the stream, as in BERT (Devlin et al. 2018, arXiv:1810.04805). x: (..., D)."""

    def __init__(self, d_model: int, activation: PlainActivation, norm: nn.Module) -> None:
        super().__init__()
        self.activation = UNGATED[activation]
        self.dense = Linear(d_model, d_model, bias=True, role="input")
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out


ALIGNED = 64
"""Multiple that vocabularies are padded to: tensor cores need rows aligned to 16 bytes and are fastest at 128 bytes, 64
numbers of 16 bits."""


def padded_size(vocabulary: int) -> int:
    """`vocabulary` rounded up to a multiple of 64."""
    return vocabulary + -vocabulary % ALIGNED


def aligned_product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """hidden: (..., D), weight: (V, D), bias: (V,) → logits (..., V).

    In 16-bit training on a GPU, rows of zeros extend the table to a multiple of 64, and their logits are cut off:
    8,193 tokens would select a slow kernel. This adds no parameters and changes no logit.
    """
    size = weight.shape[0]
    missing = padded_size(size) - size
    narrow = device_type(hidden) == "cuda" and computed_in(hidden) in (torch.bfloat16, torch.float16)
    if missing == 0 or not (torch.is_grad_enabled() and narrow):
        return F.linear(hidden, weight, bias)
    longer = None if bias is None else F.pad(bias, (0, missing))
    return F.linear(hidden, F.pad(weight, (0, 0, 0, missing)), longer)[..., :size]
