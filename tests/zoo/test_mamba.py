"""Mamba against its paper's recurrence, one token, feature and number of the state at a time in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.slow import close, convolved, layer_of, linear, random_stream, rms, run
from zoo.mixers.mamba import Mamba
from zoo.norms.rmsnorm import RMSNorm
from zoo.site import ForwardPass, LayerSite

D, T = 12, 21
X = random_stream(T, D)


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
@pytest.mark.parametrize("normed", [False, True])
def test_mamba_is_its_recurrence(chunk: int, normed: bool) -> None:
    """Equations 2 and 4 of the paper, with the zero-order hold of A and Euler's of b, as in the authors' code."""
    spec = Mamba(inner=7, state=3, rank=2, bias=True, chunk=chunk, part_norm=RMSNorm(eps=1e-3) if normed else None)
    layer: Any = layer_of(spec, D)
    x = F.silu(convolved(linear(layer.x, X[0]), layer.conv.weight.detach()) + layer.conv.bias.detach())
    low, b, c = linear(layer.parts, x).split([2, 3, 3], -1)
    if normed:
        parts = zip((low, b, c), layer.part_norms, strict=True)
        low, b, c = (rms(part, norm.gain.detach(), 1e-3) for part, norm in parts)
    delta = F.softplus(linear(layer.step, low) + layer.step_bias.detach())
    rate, out = layer.log_rate.detach().exp(), torch.zeros(T, 7, dtype=torch.float64)
    for i in range(7):
        state = [0.0] * 3
        for t in range(T):
            for n in range(3):
                fading = math.exp(-float(rate[i, n] * delta[t, i]))
                state[n] = fading * state[n] + float(delta[t, i] * b[t, n] * x[t, i])
            out[t, i] = sum(s * float(read) for s, read in zip(state, c[t], strict=True)) + layer.skip[i] * x[t, i]
    close(run(layer, X), linear(layer.o, out * F.silu(linear(layer.gate, X[0]))))


def test_rates_start_as_the_first_numbers() -> None:
    layer: Any = Mamba(inner=7, state=3).resolve(D).build(LayerSite(D, 0, 4))
    torch.testing.assert_close(torch.as_tensor(layer.initial["log_rate"]).exp(), torch.tensor([[1.0, 2.0, 3.0]] * 7))


def test_a_state_that_forgets_at_once_overflows_nothing() -> None:
    layer: Any = layer_of(Mamba(inner=6, state=4), D).float()
    with torch.no_grad():
        layer.log_rate.fill_(5.0)
        layer.step_bias.fill_(2.0)
    x = random_stream(130, D).float().requires_grad_()
    layer(x, ForwardPass.of(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
