"""Mamba-3 against its paper's recurrence, arXiv:2603.15569, one token and head at a time in float64."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import close, layer_of, linear, random_stream, rms, run
from zoo.mixers.mamba3 import Mamba3

D, T, H, P = 12, 21, 4, 3
X = random_stream(T, D)


def turned(x: Tensor, angles: list[float]) -> Tensor:
    """Neighbours as complex numbers; what has no angle stays."""
    out = x.clone()
    for i, angle in enumerate(angles):
        number = complex(float(x[2 * i]), float(x[2 * i + 1])) * cmath.exp(1j * angle)
        out[2 * i], out[2 * i + 1] = number.real, number.imag
    return out


@torch.no_grad()
def slow(layer: Any, spec: Mamba3, x: Tensor) -> Tensor:
    """x: (T, D) → (T, D). §3.3 with the three terms of proposition 4: R keys, values and queries of a head at each
    token, one at a time; where R is 1, values and outputs are as they were projected."""
    b, c = (
        rms(linear(part, x).view(T, spec.groups, spec.rank, spec.state), norm.gain, 1e-5)
        for part, norm in ((layer.b, layer.b_norm), (layer.c, layer.c_norm))
    )
    values, gate = (linear(part, x).view(T, H, P) for part in (layer.x, layer.gate))
    speed, delta = math.pi * torch.tanh(linear(layer.angle, x)), F.softplus(linear(layer.step, x) + layer.step_bias)
    raw, share = linear(layer.rate, x), torch.sigmoid(linear(layer.share, x))
    rate = torch.where(raw >= 0, 1 + raw, 1 / (1 - raw)) if spec.rate_activation == "heavy_tail" else F.softplus(raw)
    rate = rate.clamp(min=1e-4)
    of_x, of_gate, of_out = (
        getattr(layer.ranks, part) if spec.rank > 1 else torch.ones(H, 1, P) for part in ("x", "gate", "out")
    )
    out = torch.zeros(T, H, P, dtype=torch.float64)
    for h in range(H):
        group = h // (H // spec.groups)
        state, before = torch.zeros(spec.state, P, dtype=torch.float64), torch.zeros(spec.state, P, dtype=torch.float64)
        angles = [0.0] * spec.pairs
        for t in range(T):
            angles = [angle + float(delta[t, h] * speed[t, i]) for i, angle in enumerate(angles)]
            alpha = math.exp(-float(rate[t, h] * delta[t, h]))
            beta, gamma = float((1 - share[t, h]) * delta[t, h]) * alpha, float(share[t, h] * delta[t, h])
            fed, new = [of_x[h, r] * values[t, h] for r in range(spec.rank)], torch.zeros_like(state)
            for r in range(spec.rank):
                new = new + torch.outer(turned(b[t, group, r] + layer.b_bias[h, r], angles), fed[r])
            state, before = alpha * state + beta * before + gamma * new, new
            for r in range(spec.rank):
                y = turned(c[t, group, r] + layer.c_bias[h, r], angles) @ state + layer.skip[h] * fed[r]
                out[t, h] += of_out[h, r] * y * F.silu(of_gate[h, r] * gate[t, h])
    return linear(layer.o, out.flatten(1))


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize(
    "settings",
    [
        {"groups": 1, "rope_fraction": 0.5},
        {"groups": 2, "rope_fraction": 1.0},
        {"rank": 2},
        {"groups": 2, "rank": 3},
        {"rate_activation": "heavy_tail"},
    ],
    ids=str,
)
def test_mamba3_is_its_recurrence(chunk: int, settings: dict[str, Any]) -> None:
    """With one input and output of each head, and with several."""
    spec = Mamba3(heads=H, head_dim=P, state=5, chunk=chunk, **settings)
    layer = layer_of(spec, D)
    close(run(layer, X), slow(layer, spec, X[0]))


def test_a_rank_adds_keys_queries_and_three_vectors_of_each_head() -> None:
    """§3.3: D N R for each of B and C, shared by heads, and P R for x, z and y of each head; biases of each rank."""
    one, four = (zoo.cost(zoo.load("small", **{"block.mixer": {"kind": "mamba3", "rank": r}})).params for r in (1, 4))
    spec = zoo.load("small")
    features = 2 * spec.d_model // 4
    assert four - one == spec.n_layers * (2 * spec.d_model * 128 * 3 + 2 * 4 * 128 * 3 + 3 * 4 * 4 * features)


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"groups": 3}, "groups: 3 groups do not divide 4 heads"),
        ({"heads": 7}, "heads: 7 heads do not divide 256 features"),
        ({"state": 3}, "rope_fraction: 0.5 of 3 features is less than one pair"),
    ],
    ids=str,
)
def test_what_it_cannot_be_is_refused(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **{"block.mixer": {"kind": "mamba3", **mixer}})
