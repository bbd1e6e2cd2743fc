"""Several projections of one input, computed as one matrix product.

A small model's pass spends much of its time on issuing operations, so one product for queries, keys and values is
faster than three. The weights stay parameters of their own: each use concatenates them, and autograd splits the
gradient. Decoding keeps the concatenated weights beside its cache, since for one token concatenating would take longer
than the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.init import Linear
from zoo.kernels.precision import computed_in
from zoo.kernels.tracing import is_fake
from zoo.site import ForwardPass

MOST_WEIGHTS = 2**20
"""Most weights that are concatenated: products of larger matrices take so long that issuing them hardly counts."""


def project_all(x: Tensor, step: ForwardPass, *layers: Linear) -> tuple[Tensor, ...]:
    """`[layer(x) for layer in layers]` to within rounding. x: (…, in) → (…, out) each.

    Layers are called one by one if anything else acts on one of them: a hook, an adapter in its place, a quantised or
    sharded weight.
    """
    if not _is_one_product(layers):
        return tuple(layer(x) for layer in layers)
    if torch.is_grad_enabled():
        joined = _concatenated(layers)
    elif step.kept is not None and not layers[0].weight.is_inference():
        joined = _kept(step.kept, layers, computed_in(x))
    elif x.shape[-2] == 1:  # a single token, for which concatenating takes longer than it saves
        return tuple(layer(x) for layer in layers)
    else:
        joined = _concatenated(layers)
    parts: tuple[Tensor, ...] = F.linear(x, *joined).split([layer.out_features for layer in layers], dim=-1)
    return parts


def _is_one_product(layers: Sequence[Linear]) -> bool:
    first = layers[0].weight
    biased, trained, weights = layers[0].bias is not None, first.requires_grad, 0
    for layer in layers:
        weight = layer.weight
        if (
            type(layer) is not Linear
            or layer._forward_hooks
            or layer._forward_pre_hooks
            or layer._backward_hooks
            or layer._backward_pre_hooks
            or "forward" in layer.__dict__
            or not (type(weight) is nn.Parameter or is_fake(weight))
            or weight.requires_grad is not trained
            or weight.dtype is not first.dtype
            or weight.device != first.device
            or (layer.bias is not None) is not biased
        ):
            return False
        weights += weight.numel()
    return weights <= MOST_WEIGHTS


def _concatenated(layers: Sequence[Linear]) -> tuple[Tensor, Tensor | None]:
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return torch.cat(weights), torch.cat(biases) if biases else None


def _kept(kept: dict[Any, Any], layers: Sequence[Linear], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """The concatenated weights in `dtype`, made anew if a parameter has been moved or changed since."""
    parameters = [p for layer in layers for p in (layer.weight, layer.bias) if p is not None]
    key = dtype, *((p.data_ptr(), p._version) for p in parameters)
    if key not in kept:
        weight, bias = _concatenated(layers)
        kept[key] = weight.to(dtype), None if bias is None else bias.to(dtype)
    joined: tuple[Tensor, Tensor | None] = kept[key]
    return joined
