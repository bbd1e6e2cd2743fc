"""Attention as the papers write it: float64, one head, query and key at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.mixers import Mixer, MixerLayer
from zoo.site import ForwardPass, LayerSite

Score = Callable[[Tensor, Tensor, int], float]


def layer_of(spec: Mixer, d_model: int, seed: int = 0, layer: int = 0) -> MixerLayer:
    """A built mixer with random weights, in float64."""
    built = spec.resolve(d_model).build(LayerSite(d_model, layer, 4)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            centre = 1.0 if name.endswith("gain") else 0.0
            parameter.copy_(centre + 0.5 * torch.randn(parameter.shape, generator=generator))
    return built


def random_stream(length: int, d_model: int, seed: int = 1) -> Tensor:
    """x: (1, T, D) float64."""
    return torch.randn(1, length, d_model, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(layer: MixerLayer, x: Tensor, step: ForwardPass | None = None) -> Tensor:
    """(T, D)."""
    with torch.no_grad():
        out: Tensor = layer(x, step or ForwardPass.of(torch.zeros(x.shape[:2])))[0]
    return out


def project(layer: Any, name: str, x: Tensor, heads: int) -> Tensor:
    """x: (1, T, D) → (heads, T, d)."""
    module = getattr(layer, name)
    out = x[0] @ module.weight.detach().T
    if module.bias is not None:
        out = out + module.bias.detach()
    return out.unflatten(-1, (heads, -1)).transpose(0, 1)


def maps(q: Tensor, k: Tensor, score: Score, window: int | None = None, sinks: Sequence[float] | None = None) -> Tensor:
    """Attention weights (H, T, S), one score at a time. q: (H, T, d), k: (K, T, d)."""
    heads, length, _ = q.shape
    out = torch.zeros(heads, length, length, dtype=torch.float64)
    for h in range(heads):
        group = h // (heads // k.shape[0])
        for t in range(length):
            seen = [s for s in range(t + 1) if window is None or t - s < window]
            powers = [math.exp(score(q[h, t], k[group, s], h)) for s in seen]
            total = sum(powers) + (math.exp(sinks[h]) if sinks is not None else 0.0)
            for s, power in zip(seen, powers, strict=True):
                out[h, t, s] = power / total
    return out


def mix(weights: Tensor, v: Tensor) -> Tensor:
    """weights: (H, T, S), v: (K, S, e) → (H, T, e)."""
    groups = weights.shape[0] // v.shape[0]
    return torch.stack([weights[h] @ v[h // groups] for h in range(weights.shape[0])])


def write(layer: Any, heads: Tensor) -> Tensor:
    """(H, T, e) → (T, D): concatenated and projected."""
    out: Tensor = heads.transpose(0, 1).flatten(1) @ layer.o.weight.detach().T
    return out


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """x: (T, C), weight: (C, W) → (T, C)."""
    out = torch.zeros_like(x)
    for t in range(len(x)):
        for back in range(min(weight.shape[1], t + 1)):
            out[t] += weight[:, -1 - back] * x[t - back]
    return out


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def linear(layer: Any, x: Tensor) -> Tensor:
    """Weight and bias of a projection. x: (T, D)."""
    return F.linear(x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


def close(actual: Tensor, expected: Tensor) -> None:
    """Assert equality to the precision of float32, in which norms are taken."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6 * expected.abs().max().item())
