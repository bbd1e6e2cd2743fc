"""Options of the delta rules, one token, step and head at a time in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.slow import convolved, layer_of, linear, random_stream, rms, run, write
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.mixers._delta import delta_scan
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.mixers.kda import KimiDeltaAttention

D, T = 12, 21
X = random_stream(T, D)


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(("conv", "negative"), [(None, True), (3, False), (3, True)])
def test_gated_deltaproduct_takes_its_steps_one_after_the_other(
    chunk: int, steps: int, conv: int | None, negative: bool
) -> None:
    """Equation 5 of arXiv:2502.10297, with the gate of its Gated DeltaProduct; strengths up to 2 as in
    arXiv:2411.12537."""
    sizes: dict[str, Any] = {"heads": 4, "k_heads": 2, "head_dim": 5, "v_dim": 3, "chunk": chunk, "conv": conv}
    spec = GatedDeltaNet(**sizes, householders=steps, negative_eigenvalues=negative)
    layer: Any = layer_of(spec, D)
    parts = torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], -1)
    parts = F.silu(parts if conv is None else convolved(parts, layer.conv.weight.detach()))
    q, k, v = parts.split([10, 10 * steps, 12 * steps], -1)
    q, k, v = q.view(T, 2, 5), k.view(T, steps, 2, 5), v.view(T, steps, 4, 3)
    strength, raw, gate = (linear(getattr(layer, name), X[0]) for name in ("strength", "forget", "gate"))
    strength = strength.view(T, steps, 4).sigmoid() * (2 if negative else 1)
    rate, bias = layer.decay.log_rate.detach().exp(), layer.decay.step_bias.detach()
    out = torch.zeros(4, T, 3, dtype=torch.float64)
    for h in range(4):
        state = torch.zeros(3, 5, dtype=torch.float64)
        for t in range(T):
            state = state * math.exp(-rate[h] * F.softplus(raw[t, h] + bias[h]))
            for i in range(steps):
                key, beta = F.normalize(k[t, i, h // 2], dim=0), strength[t, i, h]
                state = state @ (torch.eye(5, dtype=torch.float64) - beta * torch.outer(key, key))
                state = state + beta * torch.outer(v[t, i, h], key)
            read = state @ F.normalize(q[t, h // 2], dim=0) / math.sqrt(5)
            out[h, t] = rms(read, layer.head_norm.gain.detach(), 1e-6) * F.silu(gate[t, 3 * h : 3 * h + 3])
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 8, 64])
def test_kda_with_negative_eigenvalues_and_without_a_convolution(chunk: int) -> None:
    spec = KimiDeltaAttention(heads=3, head_dim=5, chunk=chunk, low_rank=False, conv=None, negative_eigenvalues=True)
    layer: Any = layer_of(spec, D)
    q, k, v = (F.silu(linear(getattr(layer, name), X[0])).view(T, 3, 5) for name in "qkv")
    raw = (linear(layer.forget, X[0]) + layer.decay.step_bias.detach()).view(T, 3, 5)
    beta, gate = 2 * linear(layer.strength, X[0]).sigmoid(), linear(layer.gate, X[0]).view(T, 3, 5)
    out = torch.zeros(3, T, 5, dtype=torch.float64)
    for h in range(3):
        rate, state = layer.decay.log_rate[h].detach().exp(), torch.zeros(5, 5, dtype=torch.float64)
        for t in range(T):
            key, query = (F.normalize(x[t, h], dim=0) for x in (k, q))
            removed = torch.eye(5, dtype=torch.float64) - beta[t, h] * torch.outer(key, key)
            state = removed @ torch.diag((-rate * F.softplus(raw[t, h])).exp()) @ state
            state = state + beta[t, h] * torch.outer(key, v[t, h])
            read = rms(state.T @ query / math.sqrt(5), layer.head_norm.gain.detach(), 1e-5)
            out[h, t] = read * gate[t, h].sigmoid()
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("chunk", "length"), [(1, 6), (8, 2), (8, 21)])
def test_the_products_of_several_steps_are_those_counted(chunk: int, length: int) -> None:
    mixer = {"kind": "gated_deltanet", "chunk": chunk, "householders": 3, "conv": None}
    spec = zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **{"block.mixer": mixer})
    model, tokens = random_model(spec), random_tokens(spec, 2, length + 1)
    with counted(model, 3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    declared = zoo.cost(spec, context=length).flops_per_token_executed
    assert count.total / (2 * length) == pytest.approx(declared, rel=1e-9)


def test_parity_is_within_reach_of_a_strength_of_two_alone() -> None:
    """With one key, β = 2 flips the sign of what is stored with each token; below 1 it never does."""
    ones = torch.ones(1, 1, 9, 1, dtype=torch.float64)
    values = F.pad(torch.ones(1, 1, 1, 1, dtype=torch.float64), (0, 0, 0, 8))
    flat = torch.zeros(1, 1, 9, dtype=torch.float64)
    read = delta_scan(ones, ones, values, flat, flat + 2, chunk=4)[0, 0, :, 0]
    torch.testing.assert_close(read, 2 * (-1.0) ** torch.arange(9, dtype=torch.float64))
