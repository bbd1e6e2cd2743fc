"""Titans' memory against its equations, arXiv:2501.00663, one token and head at a time in float64, with torch's own
gradient of the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.slow import close, convolved, layer_of, linear, project, random_stream, rms, run, write
from zoo.mixers.titans import Titans, momentum_scan

D, T, H, N = 12, 21, 3, 5
X = random_stream(T, D)


def surprise(memory: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """∇ℓ(M), eq. 12, halved."""
    at = memory.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(0.5 * (at.T @ k - v).square().sum(), at)
    return gradient


@pytest.mark.parametrize("chunk", [1, 2, 8, 64])
@pytest.mark.parametrize("conv", [None, 3])
def test_titans_is_its_recurrence(chunk: int, conv: int | None) -> None:
    layer: Any = layer_of(Titans(heads=H, head_dim=N, chunk=chunk, conv=conv), D)
    if conv is None:
        q, k, v = (project(layer, name, X, H) for name in "qkv")
    else:
        joined = torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], dim=1)
        parts = convolved(joined, layer.conv.weight.detach()).chunk(3, dim=1)
        q, k, v = (part.view(T, H, N).transpose(0, 1) for part in parts)
    q, k, v = F.normalize(F.silu(q), dim=-1), F.normalize(F.silu(k), dim=-1), F.silu(v)
    forget = torch.sigmoid(linear(layer.forget, X[0]) + layer.forget_bias.detach())
    momentum, rate = (torch.sigmoid(linear(each, X[0])) for each in (layer.momentum, layer.rate))
    gate, out = project(layer, "gate", X, H), torch.zeros(H, T, N, dtype=torch.float64)
    for h in range(H):
        memory, moving = (torch.zeros(N, N, dtype=torch.float64) for _ in range(2))
        for t in range(T):
            moving = momentum[t, h] * moving - rate[t, h] * surprise(memory, k[h, t], v[h, t])
            memory = (1 - forget[t, h]) * memory + moving
            out[h, t] = rms(memory.T @ q[h, t], layer.head_norm.gain.detach(), 1e-6) * F.silu(gate[h, t])
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


def test_without_momentum_it_is_a_delta_rule_that_forgets() -> None:
    """η = 0, θ = 1 and nothing forgotten: a key of length 1 that was just written is read as its value."""
    k, v = (random_stream(9, 4, seed)[:, None] for seed in (1, 2))
    k, zeros = F.normalize(k, dim=-1), torch.zeros(1, 1, 9, dtype=torch.float64)
    close(momentum_scan(k, k, v, keep=zeros, momentum=zeros - 1e3, rate=zeros + 1, chunk=4)[0, 0], v[0, 0])
