"""Mixers that forget by key feature, or by a fixed slope: against their papers' recurrences, one token and head at a
time in float64."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.zoo.slow import close, convolved, layer_of, linear, project, random_stream, rms, run, write
from zoo.mixers._decay import decayed_scores
from zoo.mixers.gla import GatedLinearAttention
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.lightning import LightningAttention
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass

D, T = 12, 21
X = random_stream(T, D)
every_chunk = pytest.mark.parametrize("chunk", [1, 4, 8, 64])


def through(layer: Any, x: Tensor) -> Tensor:
    """Output of a projection, either through a few features or whole."""
    return linear(layer.up, linear(layer.down, x)) if hasattr(layer, "down") else linear(layer, x)


@every_chunk
def test_gla_is_its_recurrence(chunk: int) -> None:
    """Equations of §4.4: diagonal decay, a norm over each head, a gate."""
    layer: Any = layer_of(
        GatedLinearAttention(heads=3, head_dim=4, v_dim=5, rank=2, decay_temperature=3.0, chunk=chunk), D
    )
    q, k, v = (project(layer, name, X, 3) for name in "qkv")
    alpha = through(layer.forget, X[0]).sigmoid() ** (1 / 3)
    gate = project(layer, "gate", X, 3)
    out = torch.zeros_like(v)
    for h in range(3):
        state = torch.zeros(4, 5, dtype=torch.float64)
        for t in range(T):
            state = torch.diag(alpha[t, 4 * h : 4 * h + 4]) @ state + torch.outer(k[h, t], v[h, t])
            read = rms(state.T @ q[h, t] / math.sqrt(4), layer.head_norm.gain.detach(), 1e-5)
            out[h, t] = read * F.silu(gate[h, t])
    close(run(layer, X), write(layer, out))


@every_chunk
@pytest.mark.parametrize("floor", [None, -5.0])
def test_kda_is_its_recurrence(chunk: int, floor: float | None) -> None:
    """Equation 1 of the paper. With a floor, as in Ling 3.0."""
    spec = KimiDeltaAttention(heads=3, head_dim=5, chunk=chunk, low_rank=floor is None, decay_floor=floor)
    layer: Any = layer_of(spec, D)
    parts = torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], -1)
    q, k, v = F.silu(convolved(parts, layer.conv.weight.detach())).view(T, 3, 3, 5).unbind(1)
    raw = (through(layer.forget, X[0]) + layer.decay.step_bias.detach()).view(T, 3, 5)
    beta, gate = linear(layer.strength, X[0]).sigmoid(), through(layer.gate, X[0]).view(T, 3, 5)
    out = torch.zeros(3, T, 5, dtype=torch.float64)
    for h in range(3):
        rate, state = layer.decay.log_rate[h].detach().exp(), torch.zeros(5, 5, dtype=torch.float64)
        for t in range(T):
            key, query = (F.normalize(x[t, h], dim=0) for x in (k, q))
            decay = -rate * F.softplus(raw[t, h]) if floor is None else floor * torch.sigmoid(rate * raw[t, h])
            removed = torch.eye(5, dtype=torch.float64) - beta[t, h] * torch.outer(key, key)
            state = removed @ torch.diag(decay.exp()) @ state + beta[t, h] * torch.outer(key, v[t, h])
            read = rms(state.T @ query / math.sqrt(5), layer.head_norm.gain.detach(), 1e-5)
            out[h, t] = read * gate[t, h].sigmoid()
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [0, 2, 3])
def test_lightning_attention_is_its_recurrence(depth: int) -> None:
    """The recurrence holds in the first, a middle and the last of four layers, with the slopes of the released
    model."""
    layer: Any = layer_of(LightningAttention(heads=3, head_dim=5, chunk=4), D, layer=depth)
    q, k, v = (F.silu(project(layer, name, X, 3)) for name in "qkv")
    out = torch.zeros_like(v)
    for h in range(3):
        slope = 2 ** (-8 * (h + 1) / 3) * (1 - depth / (3 + 1e-5) + 1e-5)
        state = torch.zeros(5, 5, dtype=torch.float64)
        for t in range(T):
            state = math.exp(-slope) * state + torch.outer(k[h, t], v[h, t])
            out[h, t] = state.T @ q[h, t]
    read = rms(out.transpose(0, 1).flatten(1), layer.output_norm.gain.detach(), 1e-6)
    gated = read * linear(layer.gate, X[0]).sigmoid()
    close(run(layer, X), linear(layer.o, gated))


@pytest.mark.parametrize("depth", [0, 2, 3])
def test_lightning_attention_of_ling_is_its_recurrence(depth: int) -> None:
    """Normed and half turned queries and keys, slopes counted from −1, and a norm over each group of features."""
    rope = RoPE(base=100.0, fraction=0.5)
    options = {"activation": None, "qk_norm": RMSNorm(), "position": rope, "norm_groups": 4, "first_layer": -1}
    layer: Any = layer_of(LightningAttention(heads=2, head_dim=8, chunk=4, **options), D, layer=depth)
    q, k, v = (project(layer, name, X, 2) for name in "qkv")
    q, k = (rms(x, norm.gain.detach(), 1e-6) for x, norm in ((q, layer.q_norm), (k, layer.k_norm)))
    out = torch.zeros_like(v)
    for h in range(2):
        slope = 2 ** (-8 * (h + 1) / 2) * (1 - (depth - 1) / (4 - 1) + 1e-5)
        state = torch.zeros(8, 8, dtype=torch.float64)
        for t in range(T):
            state = math.exp(-slope) * state + torch.outer(half_turned(k[h, t], t), v[h, t])
            out[h, t] = state.T @ half_turned(q[h, t], t)
    groups = out.transpose(0, 1).flatten(1).chunk(4, dim=1)
    read = [rms(group, norm.gain.detach(), 1e-6) for group, norm in zip(groups, layer.output_norm.norms, strict=True)]
    gated = torch.cat(read, dim=1) * linear(layer.gate, X[0]).sigmoid()
    torch.testing.assert_close(run(layer, X), linear(layer.o, gated), rtol=1e-4, atol=1e-4)


def half_turned(x: Tensor, place: int) -> Tensor:
    """RoPE of base 100 on the first four of eight features: 0 and 2, and 1 and 3, as complex numbers."""
    first, second = (complex(float(x[i]), float(x[i + 2])) * cmath.exp(1j * place * 100 ** (-i / 2)) for i in (0, 1))
    turned = torch.tensor([first.real, second.real, first.imag, second.imag], dtype=x.dtype)
    return torch.cat((turned, x[4:]))


@pytest.mark.parametrize("length", [1, 2, 8, 32])
def test_pairs_are_weighed_by_what_lies_between_them(length: int) -> None:
    q, k, decay = (torch.randn(2, length, 3, generator=torch.Generator().manual_seed(i)).double() for i in range(3))
    total = -decay.abs().cumsum(dim=1)
    found = decayed_scores(q, k, total)
    for row in range(2):
        for i in range(length):
            for j in range(length):
                fading = (total[row, i] - total[row, j]).exp() if j <= i else torch.zeros(3, dtype=torch.float64)
                assert found[row, i, j].item() == pytest.approx((q[row, i] * k[row, j] * fading).sum().item(), rel=1e-9)


@pytest.mark.parametrize("spec", [GatedLinearAttention(heads=2), KimiDeltaAttention(heads=2)], ids=lambda s: s.kind)
def test_features_that_forget_at_once_overflow_nothing(spec: Any) -> None:
    """Decays of e^−50 a token and more: over a chunk their products are beyond any float."""
    layer: Any = layer_of(spec, D).float()
    with torch.no_grad():
        if spec.kind == "kda":
            layer.decay.log_rate.fill_(4.0)
            layer.decay.step_bias.fill_(1.0)
        else:
            layer.forget.up.bias.fill_(-1000.0)
    x = random_stream(130, D).float().requires_grad_()
    layer(x, ForwardPass.of(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
