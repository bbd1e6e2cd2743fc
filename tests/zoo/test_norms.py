"""Norms against their formulas in float64, one vector at a time."""

from __future__ import annotations

import math

import pytest
import torch

from zoo.norms.layernorm import LayerNorm
from zoo.norms.rmsnorm import RMSNorm


def vectors() -> torch.Tensor:
    return 3 + 2 * torch.randn(5, 7, generator=torch.Generator().manual_seed(0))


def test_rmsnorm_is_its_formula() -> None:
    layer = RMSNorm(eps=1e-3).build(7)
    layer.gain.data = torch.linspace(0.5, 2, 7)
    for x, y in zip(vectors().tolist(), layer(vectors()).tolist(), strict=True):
        rms = math.sqrt(sum(v * v for v in x) / 7 + 1e-3)
        assert y == pytest.approx([v / rms * g for v, g in zip(x, layer.gain.tolist(), strict=True)], rel=1e-5)


def test_rmsnorm_without_a_gain_makes_every_mean_square_one() -> None:
    layer = RMSNorm(eps=1e-12, gain=False).build(7)
    assert not list(layer.parameters())
    torch.testing.assert_close(layer(vectors()).square().mean(-1), torch.ones(5))
    with pytest.raises(ValueError, match="unit_offset: needs gain: true"):
        RMSNorm(gain=False, unit_offset=True)


@pytest.mark.parametrize("bias", [True, False])
def test_layernorm_is_its_formula(bias: bool) -> None:
    layer = LayerNorm(eps=1e-3, bias=bias).build(7)
    layer.gain.data = torch.linspace(0.5, 2, 7)
    shift = torch.zeros(7)
    if bias:
        shift = torch.linspace(-1, 1, 7)
        layer.bias.data = shift
    for x, y in zip(vectors().tolist(), layer(vectors()).tolist(), strict=True):
        mean = sum(x) / 7
        deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / 7 + 1e-3)
        expected = [
            (v - mean) / deviation * g + b for v, g, b in zip(x, layer.gain.tolist(), shift.tolist(), strict=True)
        ]
        assert y == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_rmsnorm_takes_its_mean_in_float32() -> None:
    """300² overflows float16."""
    layer = RMSNorm().build(4).half()
    assert layer(torch.full((1, 4), 300.0, dtype=torch.float16)).tolist() == [[1.0] * 4]
