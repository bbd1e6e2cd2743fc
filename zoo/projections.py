"""Several projections of one input, computed as one matrix product.

A small model's pass spends much of its time on issuing operations, so one product for queries, keys and values is
faster than three. The weights stay parameters of their own: each use concatenates them, and autograd splits the
gradient. In decoding, concatenating would take longer than the products of a few tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.init import Linear
from zoo.kernels.compiling import is_fake

MOST_WEIGHTS = 2**20
"""Most weights that are concatenated: products of larger matrices take so long that issuing them hardly counts."""
MOST_INPUTS = 2**22
"""Most numbers in their input, for the same reason. The outputs share memory: a layer that keeps one for the backward
pass keeps all."""


def project_all(x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """`[layer(x) for layer in layers]` to within rounding. x: (…, in) → (…, out) each.

    Layers are called one by one if anything else acts on one of them, such as a hook, an adapter in its place, a
    quantised or sharded weight; and, without gradients, for fewer tokens than they have inputs.
    """
    whole = joint_product(x, layers)
    if whole is None:
        return tuple(layer(x) for layer in layers)
    parts: tuple[Tensor, ...] = whole.split_with_sizes([layer.out_features for layer in layers], dim=-1)
    return parts


def joint_product(x: Tensor, layers: Sequence[Linear]) -> Tensor | None:
    """Outputs of the layers side by side, (…, Σ out); None if they must be called one by one, as in `project_all`."""
    few = not torch.is_grad_enabled() and x.numel() < x.shape[-1] ** 2
    if few or x.numel() > MOST_INPUTS or not (parameters := _plain_parameters(layers)):
        return None
    weights: list[Tensor] = [weight for weight, _ in parameters]
    biases: list[Tensor] = [bias for _, bias in parameters if bias is not None]
    return F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)


Pair = tuple[nn.Parameter, nn.Parameter | None]
"""Weight and bias of a layer."""


def _plain_parameters(layers: Sequence[Linear]) -> list[Pair]:
    """Parameters of layers that one product can stand for; empty if it cannot."""
    pairs: list[Pair] = []
    weights = 0
    for layer in layers:
        if (
            type(layer) is not Linear
            or layer._forward_hooks
            or layer._forward_pre_hooks
            or layer._backward_hooks
            or layer._backward_pre_hooks
            or "forward" in layer.__dict__
        ):
            return []
        # From the dictionary: `layer.weight` takes longer than all of these conditions.
        weight, bias = layer._parameters["weight"], layer._parameters["bias"]
        first, first_bias = pairs[0] if pairs else (weight, bias)
        if (
            weight is None
            or first is None
            or not (type(weight) is nn.Parameter or is_fake(weight))
            or weight.requires_grad is not first.requires_grad
            or weight.dtype is not first.dtype
            or weight.device != first.device
            or (bias is None) is not (first_bias is None)
        ):
            return []
        weights += weight.numel()
        pairs.append((weight, bias))
    return pairs if weights <= MOST_WEIGHTS else []
