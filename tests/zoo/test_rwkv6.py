"""RWKV-6 against its paper's equations, one token and head at a time in float64, and against its formula of sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import close, layer_of, linear, random_stream, run
from zoo.ffns.rwkv import GatedChannelMix
from zoo.mixers.rwkv6 import RWKV6, scan_before
from zoo.site import ForwardPass, LayerSite

D, H, T = 12, 3, 21
N = D // H
X = random_stream(T, D)
MIXER = RWKV6(heads=H, mix_rank=2, decay_rank=3)


def before(x: Tensor) -> Tensor:
    """(T, D): the token before each, zero before the first."""
    return torch.cat((torch.zeros(1, x.shape[1], dtype=x.dtype), x[:-1]))


def lora(part: Any, x: Tensor) -> Tensor:
    return linear(part.up, torch.tanh(linear(part.down, x)))


def slow_mixer(layer: Any, x: Tensor) -> Tensor:
    """x: (T, D) → (T, D), equations 11 to 19 of the paper."""
    shift = before(x) - x
    common = x + shift * layer.share.detach()
    read = {name: x + shift * lora(share, common) for name, share in zip("wkvrg", layer.shares, strict=True)}
    r, k, v, g = (linear(getattr(layer, name), read[name]) for name in "rkvg")
    w = torch.exp(-torch.exp(lora(layer.decay, read["w"])))
    out = torch.zeros(T, D, dtype=torch.float64)
    for h in range(H):
        of = slice(N * h, N * h + N)
        state, norm = torch.zeros(N, N, dtype=torch.float64), layer.head_norm.norms[h]
        for t in range(T):
            new = torch.outer(k[t, of], v[t, of])
            wkv = (state + torch.diag(layer.bonus[h].detach()) @ new).T @ r[t, of]
            state = torch.diag(w[t, of]) @ state + new
            out[t, of] = F.layer_norm(wkv, (N,), norm.gain.detach(), norm.bias.detach(), 64e-5)
    return linear(layer.o, out * F.silu(g))


@pytest.mark.parametrize("chunk", [1, 4, 8, 64])
def test_it_is_its_recurrence(chunk: int) -> None:
    layer: Any = layer_of(MIXER.model_copy(update={"chunk": chunk}), D)
    close(run(layer, X), slow_mixer(layer, X[0]))


@pytest.mark.parametrize("chunk", [1, 2, 8, 32])
def test_a_token_reads_the_state_before_it(chunk: int) -> None:
    """Also where it begins with a state, whatever the pieces of the text, and where decays leave nothing."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, H, T, N, dtype=torch.float64, generator=generator) for _ in range(3))
    decay = -torch.rand(2, H, T, N, dtype=torch.float64, generator=generator)
    decay[:, :, 5] = -20.0
    expected = torch.zeros_like(v)
    state = torch.zeros(2, H, N, N, dtype=torch.float64)
    for t in range(T):
        expected[:, :, t] = (q[:, :, t, None] @ state).squeeze(-2)
        state = decay[:, :, t, :, None].exp() * state + k[:, :, t, :, None] * v[:, :, t, None]
    close(scan_before(q, k, v, decay, chunk), expected)
    cache = MIXER.resolve(D).build(LayerSite(D, 0, 4)).new_cache(2, T, torch.float64)
    pieces = [7, 1, 1, 8, 4]
    parts = zip(*(x.split(pieces, dim=2) for x in (q, k, v, decay)), strict=True)
    close(torch.cat([scan_before(*part, chunk, cache) for part in parts], dim=2), expected)


def test_channel_mixing_is_its_formula() -> None:
    layer: Any = GatedChannelMix(d_ff=17).resolve(D).build(LayerSite(D, 0, 4)).double()
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
        x = X[0]
        k, r = (x + (before(x) - x) * share for share in layer.shares)
        expected = linear(layer.gate, r).sigmoid() * linear(layer.down, linear(layer.up, k).clamp(min=0) ** 2)
        torch.testing.assert_close(layer(X, ForwardPass.of(X[..., 0]))[0], expected)


def test_it_starts_as_the_authors_have_it() -> None:
    """Slow features first, sooner in the first layer than in the last; shares and decays begin as constants."""
    model = zoo.build(zoo.load("small", d_model=32, n_layers=4, **{"block.mixer": "rwkv6"}))
    first, last = (model.blocks[i].mixer for i in (0, -1))
    assert first.decay.up.bias[[0, -1]].tolist() == [-6.0, -1.0]
    assert (first.decay.up.bias > last.decay.up.bias)[1:-1].all()
    assert not first.decay.down.weight.any() and first.decay.up.weight.abs().max() < 0.03
    i = torch.arange(32) / 32
    torch.testing.assert_close(last.shares[2].up.bias, 1 - i**0.25 - 0.3)
    torch.testing.assert_close(last.shares[3].up.bias, 1 - i**0.125)
    torch.testing.assert_close(last.bonus.flatten()[:3], torch.tensor([1.0, 1 - 1 / 31 + 0.1, 1 - 2 / 31 - 0.1]))


@pytest.mark.parametrize(("d_model", "layers"), [(2048, 24), (2560, 32)])
def test_its_size_is_the_paper_s_formula(d_model: int, layers: int) -> None:
    """13 D²L + 464 DL + 4 D + 2 DV."""
    size = "1.6b" if layers == 24 else "3.1b"
    expected = 13 * d_model**2 * layers + 464 * d_model * layers + 4 * d_model + 2 * d_model * 65536
    assert zoo.cost(zoo.load(f"rwkv6-{size}")).params == expected


@pytest.mark.parametrize(("heads", "d_model"), [(5, 12), (3, 16)])
def test_heads_are_as_wide_as_the_stream(heads: int, d_model: int) -> None:
    with pytest.raises(zoo.SpecError, match=f"heads: {heads} heads do not divide {d_model} features"):
        RWKV6(heads=heads).resolve(d_model)
    with pytest.raises(zoo.SpecError, match=r"head_dim: must be d_model / heads \(4\), not 5"):
        RWKV6(heads=3, head_dim=5).resolve(12)


def test_a_model_without_memory_is_built_where_linspace_is_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers has it while it loads a model, and as it may stay where torch first asks for a device then."""
    linspace = torch.linspace
    monkeypatch.setattr(torch, "linspace", lambda *given, **more: linspace(*given, **{"device": "cpu", **more}))
    for mixer in ("rwkv6", "rwkv7"):
        spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31, **{"block.mixer": mixer})
        with torch.device("meta"):
            model = zoo.build(spec)
        assert {each.device.type for each in model.parameters()} == {"meta"}
