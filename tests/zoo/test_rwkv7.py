"""RWKV-7 against its paper's equations, one token and head at a time in float64, and against its published sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import close, layer_of, linear, random_stream, run
from zoo import presets
from zoo.ffns.rwkv import ChannelMix
from zoo.mixers.rwkv7 import RWKV7
from zoo.site import ForwardPass, LayerSite

D, H, T = 12, 3, 21
N = D // H
X = random_stream(T, D)
MIXER = RWKV7(heads=H, decay_rank=2, rate_rank=3, value_rank=2, gate_rank=5)


def before(x: Tensor) -> Tensor:
    """(T, D): the token before each, zero before the first."""
    return torch.cat((torch.zeros(1, D, dtype=torch.float64), x[:-1]))


def lora(part: Any, x: Tensor, between: Any = lambda x: x) -> Tensor:
    return linear(part.up, between(linear(part.down, x)))


def slow_mixer(layer: Any, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """x: (T, D), first: (T, D), the first layer's values, None in that layer itself → outputs, and its values."""
    r_x, w_x, k_x, v_x, a_x, g_x = (x + (before(x) - x) * share for share in layer.shares.detach())
    r, k, v = linear(layer.r, r_x), linear(layer.k, k_x), linear(layer.v, v_x)
    own = v
    if first is not None:
        v = v + (first - v) * lora(layer.value_mix, v_x).sigmoid()
    w = torch.exp(-math.exp(-0.5) * lora(layer.decay, w_x, torch.tanh).sigmoid())
    a, g = lora(layer.rate, a_x).sigmoid(), lora(layer.gate, g_x, torch.sigmoid)
    erased = k * layer.erased.detach()
    kept = k * (1 + (a - 1) * layer.kept.detach())
    out = torch.zeros(T, D, dtype=torch.float64)
    for h in range(H):
        of = slice(N * h, N * h + N)
        state, norm = torch.zeros(N, N, dtype=torch.float64), layer.head_norm.norms[h]
        for t in range(T):
            key = F.normalize(erased[t, of], dim=0)
            transition = torch.diag(w[t, of]) - torch.outer(key, a[t, of] * key)
            state = state @ transition + torch.outer(v[t, of], kept[t, of])
            read = F.layer_norm(state @ r[t, of], (N,), norm.gain.detach(), norm.bias.detach(), 64e-5)
            bonus = (r[t, of] * layer.bonus[h].detach() * kept[t, of]).sum() * v[t, of]
            out[t, of] = (read + bonus) * g[t, of]
    return linear(layer.o, out), own


@pytest.mark.parametrize("chunk", [1, 4, 8, 64])
def test_the_first_layer_is_its_recurrence(chunk: int) -> None:
    layer: Any = layer_of(MIXER.model_copy(update={"chunk": chunk}), D)
    expected, _ = slow_mixer(layer, X[0], None)
    close(run(layer, X), expected)


def test_later_layers_mix_in_the_values_of_the_first() -> None:
    layers: list[Any] = [layer_of(MIXER, D, seed) for seed in range(3)]
    streams, step, first = [random_stream(T, D, seed) for seed in range(3)], ForwardPass.of(torch.zeros(1, T)), None
    for layer, x in zip(layers, streams, strict=True):
        expected, own = slow_mixer(layer, x[0], first)
        close(run(layer, x, step), expected)
        first = own if first is None else first


def test_channel_mixing_is_its_formula() -> None:
    layer: Any = ChannelMix(d_ff=17).resolve(D).build(LayerSite(D, 0, 4)).double()
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
        x = X[0]
        hidden = linear(layer.up, x + (before(x) - x) * layer.share).clamp(min=0) ** 2
        torch.testing.assert_close(layer(X, ForwardPass.of(X[..., 0]))[0], linear(layer.down, hidden))


def test_it_starts_as_the_authors_have_it() -> None:
    """Slow features first, sooner in the first layer than in the last; nothing low-rank but biases and the gate."""
    model = zoo.build(zoo.load("small", d_model=32, **{"block.mixer": "rwkv7"}))
    first, last = (model.blocks[i].mixer for i in (0, -1))
    assert first.decay.up.bias[[0, -1]].tolist() == [-5.5, 0.5]
    assert (first.decay.up.bias > last.decay.up.bias)[1:-1].all()
    assert not first.decay.up.weight.any() and not first.rate.up.weight.any() and first.gate.up.weight.any()


@pytest.mark.parametrize(("heads", "d_model"), [(5, 12), (3, 16)])
def test_heads_are_as_wide_as_the_stream(heads: int, d_model: int) -> None:
    with pytest.raises(zoo.SpecError, match=f"heads: {heads} heads do not divide {d_model} features"):
        RWKV7(heads=heads).resolve(d_model)
    with pytest.raises(zoo.SpecError, match=r"head_dim: must be d_model / heads \(4\), not 5"):
        RWKV7(heads=3, head_dim=5).resolve(12)


@pytest.mark.parametrize("size", ["rwkv7", "rwkv7-0.4b", "rwkv7-1.5b", "rwkv7-2.9b"])
def test_its_size_is_the_paper_s_and_what_the_first_layer_s_share_of_itself_has(size: str) -> None:
    """The paper leaves out 2 D r + D parameters of the first layer: 49,920 at 0.19B."""
    spec = zoo.load(size)
    unused = (2 * spec.block.mixer.value_rank + 1) * spec.d_model
    assert zoo.cost(spec).params == presets.preset(size).published_parameters + unused
    assert size != "rwkv7" or unused == 49_920
