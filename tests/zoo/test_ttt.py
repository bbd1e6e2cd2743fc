"""Test-time training against its definition: gradients of a loss, taken by autograd, token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.zoo.slow import layer_of, random_stream, run
from zoo.mixers.ttt import TTT

T, D, H, N = 11, 12, 3, 5


def slow(layer: Any, x: Tensor, batch: int, base_rate: float) -> Tensor:
    """x: (T, D) → (T, D). W acts on rows."""
    q, k, v = ((x @ getattr(layer, name).weight.T).view(T, H, N) for name in "qkv")
    rates = base_rate / N * torch.sigmoid(x @ layer.rate.weight.T)
    out = torch.zeros(T, H, N, dtype=torch.float64)
    for h in range(H):

        def model(x: Tensor, w: Tensor, h: int = h) -> Tensor:
            return x + F.layer_norm(x @ w, (N,), layer.gain[h, 0], layer.bias[h, 0], 1e-6)

        now = layer.weights[h].detach().clone()
        for t in range(T):
            if t % batch == 0:
                start = now.clone().requires_grad_()
            loss = (model(k[t, h], start) - v[t, h]).square().sum()
            now = now - rates[t, h].detach() * torch.autograd.grad(loss, start)[0]
            out[t, h] = model(q[t, h], now).detach()
    return (out.flatten(1) @ layer.o.weight.T).detach()


@pytest.mark.parametrize(("batch", "base_rate"), [(1, 1.0), (4, 0.5), (16, 2.0)])
def test_reading_is_gradient_descent_on_what_was_read(batch: int, base_rate: float) -> None:
    layer: Any = layer_of(TTT(heads=H, head_dim=N, chunk=batch, base_rate=base_rate), D)
    x = random_stream(T, D)
    torch.testing.assert_close(run(layer, x), slow(layer, x[0], batch, base_rate), rtol=1e-6, atol=1e-6)


def test_weights_learn_what_keys_are_worth() -> None:
    """Keys and values that come again and again: the loss of the inner model falls."""
    layer: Any = layer_of(TTT(heads=1, head_dim=4, chunk=1, base_rate=2.0), 4)
    pair = random_stream(1, 4).expand(1, 40, 4)
    with torch.no_grad():
        layer.q.weight.copy_(layer.k.weight)
        layer.o.weight.copy_(torch.eye(4))
        guesses, value = run(layer, pair), pair[0, 0] @ layer.v.weight.T
        losses = (guesses - value).square().sum(-1)
    assert losses[-1] < 0.5 * losses[0]
