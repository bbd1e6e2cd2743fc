"""Convolutions, LSTMs and gated recurrences: against their equations in float64, one token at a time, and against the
modules of torch and transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import Lfm2Config, RecurrentGemmaConfig, xLSTMConfig
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock
from transformers.models.xlstm.modeling_xlstm import xLSTMLayer

import zoo
from tests.zoo.slow import close, convolved, layer_of, linear, project, random_stream, rms, run, write
from zoo.mixers import Mixer
from zoo.mixers.causal_conv import CausalConv
from zoo.mixers.hgrn2 import HGRN2
from zoo.mixers.lstm import LSTM
from zoo.mixers.mlstm import MLSTM
from zoo.mixers.rg_lru import RGLRU
from zoo.mixers.short_conv import GatedShortConv
from zoo.site import ForwardPass

D, T = 12, 21
X = random_stream(T, D)
every_chunk = pytest.mark.parametrize("chunk", [1, 4, 64])


def copy(source: Any, target: nn.Module, shape: tuple[int, ...] | None = None) -> None:
    """Weight and bias of a projection."""
    with torch.no_grad():
        target.weight.copy_(source.weight if shape is None else source.weight.view(shape))
        if source.bias is not None:
            target.bias.copy_(source.bias)


@pytest.mark.parametrize("bias", [False, True])
def test_short_conv_is_that_of_lfm2(bias: bool) -> None:
    layer: Any = layer_of(GatedShortConv(width=3, bias=bias), D)
    config = Lfm2Config(hidden_size=D, conv_L_cache=3, conv_bias=bias, num_hidden_layers=1, layer_types=["conv"])
    theirs = Lfm2ShortConv(config, 0).double()
    with torch.no_grad():
        theirs.in_proj.weight.copy_(torch.cat([each.weight for each in (layer.before, layer.after, layer.v)]))
        if bias:
            theirs.in_proj.bias.copy_(torch.cat([each.bias for each in (layer.before, layer.after, layer.v)]))
        copy(layer.conv, theirs.conv, (D, 1, 3))
        copy(layer.o, theirs.out_proj)
        close(run(layer, X), theirs(X)[0])


def test_short_conv_gates_before_and_after() -> None:
    layer: Any = layer_of(GatedShortConv(width=4, features=7), D)
    before, after, v = (linear(getattr(layer, name), X[0]) for name in ("before", "after", "v"))
    close(run(layer, X), linear(layer.o, after * convolved(before * v, layer.conv.weight.detach())))


@pytest.mark.parametrize(("width", "dilation"), [(2, 1), (3, 4), (4, 2)])
@pytest.mark.parametrize("gated", [True, False])
def test_causal_conv_is_a_dilated_convolution(width: int, dilation: int, gated: bool) -> None:
    layer: Any = layer_of(CausalConv(width=width, dilation=dilation, gated=gated, features=5), D)
    v = F.pad(linear(layer.v, X[0]).T[None], ((width - 1) * dilation, 0))

    def through(kernel: Any) -> torch.Tensor:
        weight = kernel.weight.detach().unflatten(1, (width, 5)).transpose(1, 2)  # (out, in, W)
        return F.conv1d(v, weight, dilation=dilation)[0].T

    mixed = through(layer.kernel)
    mixed = mixed.tanh() * through(layer.gate).sigmoid() if gated else mixed.relu()
    close(run(layer, X), linear(layer.o, mixed))


def test_lstm_is_that_of_torch() -> None:
    layer: Any = layer_of(LSTM(features=5), D)
    theirs = nn.LSTM(D, 5, batch_first=True).double()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(layer.v.weight)
        theirs.weight_hh_l0.copy_(layer.recur.weight)
        theirs.bias_ih_l0.copy_(layer.v.bias)
        theirs.bias_hh_l0.zero_()
        close(run(layer, X), linear(layer.o, theirs(X)[0][0]))


def test_lstm_starts_with_its_forget_gates_open() -> None:
    mixer: Any = zoo.build(zoo.load("small", **{"block.mixer": {"kind": "lstm", "features": 3}})).blocks[0].mixer
    assert mixer.v.bias.tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 6


@every_chunk
@pytest.mark.parametrize(("bound", "conv"), [(0.0, None), (0.3, 3)])
def test_hgrn2_is_its_recurrence(chunk: int, bound: float, conv: int | None) -> None:
    """Equation 8 of the paper, with its lower bound on forget gates."""
    layer: Any = layer_of(HGRN2(heads=3, head_dim=5, chunk=chunk, lower_bound=bound, conv=conv), D)
    parts = torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], -1)
    parts = parts if conv is None else convolved(parts, layer.conv.weight.detach())
    q, raw, v = (part.unflatten(-1, (3, 5)).transpose(0, 1) for part in parts.chunk(3, -1))
    forget, out = bound + (1 - bound) * raw.sigmoid(), torch.zeros(3, T, 5, dtype=torch.float64)
    for h in range(3):
        state = torch.zeros(5, 5, dtype=torch.float64)
        for t in range(T):
            state = torch.diag(forget[h, t]) @ state + torch.outer(1 - forget[h, t], v[h, t])
            out[h, t] = state.T @ F.silu(q[h, t])
    joined = rms(out.transpose(0, 1).flatten(1), layer.output_norm.gain.detach(), 1e-5)
    torch.testing.assert_close(run(layer, X), linear(layer.o, joined), rtol=1e-4, atol=1e-4)


def rg_lru(**settings: Any) -> Any:
    return layer_of(RGLRU(heads=2, features=6, **settings), D)


@every_chunk
def test_rg_lru_is_its_recurrence(chunk: int) -> None:
    """Equations 1 to 4 of the paper; the first token is written whole."""
    layer = rg_lru(chunk=chunk, conv=3)
    v = convolved(linear(layer.v, X[0]), layer.conv.weight.detach()) + layer.conv.bias.detach()

    def gate(block: Any) -> torch.Tensor:
        whole = torch.block_diag(*block.weight.detach())
        return (v @ whole.T + block.bias.detach()).sigmoid()

    r, i, rate = gate(layer.recur), gate(layer.admit), F.softplus(layer.rate.detach())
    state, states = torch.zeros(6, dtype=torch.float64), []
    for t in range(T):
        a = torch.exp(-8 * rate * r[t])
        share = (1 - a**2).sqrt() if t else torch.ones(6, dtype=torch.float64)
        state = a * state + share * i[t] * v[t]
        states.append(state)
    gated = F.gelu(linear(layer.gate, X[0]), approximate="tanh") * torch.stack(states)
    close(run(layer, X), linear(layer.o, gated))


def test_rg_lru_is_that_of_recurrent_gemma() -> None:
    layer = rg_lru(conv=4)
    config = RecurrentGemmaConfig(
        hidden_size=D, lru_width=6, num_attention_heads=2, num_key_value_heads=1, conv1d_width=4, head_dim=4
    )
    theirs: Any = RecurrentGemmaRecurrentBlock(config, 0).double()
    copy(layer.gate, theirs.linear_y)
    copy(layer.v, theirs.linear_x)
    copy(layer.conv, theirs.conv_1d, (6, 1, 4))
    copy(layer.o, theirs.linear_out)
    with torch.no_grad():
        theirs.rg_lru.recurrent_param.copy_(layer.rate)
        for ours, name in ((layer.recur, "recurrent_gate"), (layer.admit, "input_gate")):
            getattr(theirs.rg_lru, f"{name}_weight").copy_(ours.weight.transpose(1, 2))
            getattr(theirs.rg_lru, f"{name}_bias").copy_(ours.bias.view(2, 3))
        expected = theirs(X, torch.arange(T)[None], None, use_cache=False)[0][0]
    close(run(layer, X), expected)  # their states are float32


def test_rg_lru_starts_between_a_tenth_and_a_thousandth_forgotten() -> None:
    mixer: Any = zoo.build(zoo.load("small", **{"block.mixer": "rg_lru"})).blocks[0].mixer
    kept = torch.exp(-8 * F.softplus(mixer.rate.detach()))
    assert 0.9 < kept.min() < 0.901
    assert 0.998 < kept.max() < 0.999


@every_chunk
def test_mlstm_is_its_recurrence(chunk: int) -> None:
    """Equations 19 to 27 of the paper, with the soft cap of xLSTM 7B."""
    layer: Any = layer_of(MLSTM(heads=3, head_dim=4, v_dim=5, chunk=chunk, gate_cap=2.5), D)
    q, k, v = (project(layer, name, X, 3) for name in "qkv")
    admit, forget = (2.5 * torch.tanh(linear(each, X[0]) / 2.5) for each in (layer.admit, layer.forget))
    gate, out = project(layer, "gate", X, 3).sigmoid(), torch.zeros(3, T, 5, dtype=torch.float64)
    for h in range(3):
        cell, sums = torch.zeros(5, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
        for t in range(T):
            f, i = forget[t, h].sigmoid(), admit[t, h].exp()
            cell = f * cell + i * torch.outer(v[h, t], k[h, t])
            sums = f * sums + i * k[h, t]
            query = q[h, t] / math.sqrt(4)
            read = cell @ query / max(abs(float(sums @ query)), 1.0)
            read = (read - read.mean()) / (read.var(correction=0) + 1e-6).sqrt()
            out[h, t] = gate[h, t] * read * layer.head_norm.norms[h].gain.detach()
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [0.5, 8.0])
def test_mlstm_is_that_of_xlstm(scale: float) -> None:
    """Large gates too: theirs are rescaled by a running maximum."""
    layer: Any = layer_of(MLSTM(heads=3, head_dim=2, v_dim=4), D)
    config = xLSTMConfig(
        hidden_size=D, num_heads=3, qk_dim_factor=0.5, v_dim_factor=1.0, gate_soft_cap=15.0, norm_eps=1e-6, eps=1e-12,
        chunkwise_kernel="chunkwise--native_autograd", sequence_kernel="native_sequence__native", mode="train",
        chunk_size=64,
    )  # fmt: skip
    theirs: Any = xLSTMLayer(config).double()
    with torch.no_grad():
        for each in (layer.admit, layer.forget):
            each.weight.mul_(scale)
            each.bias.mul_(scale)
        names = {"q": "q", "k": "k", "v": "v", "o": "out_proj", "gate": "ogate_preact"}
        for ours, name in {**names, "admit": "igate_preact", "forget": "fgate_preact"}.items():
            copy(getattr(layer, ours), getattr(theirs, name))
        theirs.multihead_norm.weight.copy_(torch.cat([norm.gain for norm in layer.head_norm.norms]))
        long = random_stream(64, D)
        expected = theirs(long)[0][0]
    torch.testing.assert_close(run(layer, long), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_mlstm_starts_with_gates_that_do_not_depend_on_the_token() -> None:
    mixer: Any = zoo.build(zoo.load("small", **{"block.mixer": "mlstm"})).blocks[0].mixer
    assert not mixer.admit.weight.any()
    assert not mixer.forget.weight.any()
    assert mixer.admit.bias.tolist() == [-10.0] * 4
    assert mixer.forget.bias.tolist() == [3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize(
    "spec",
    [
        GatedShortConv(),
        CausalConv(width=3, dilation=3),
        LSTM(features=5),
        HGRN2(heads=3, chunk=4),
        RGLRU(chunk=4),
        MLSTM(heads=3, chunk=4),
    ],
    ids=lambda spec: spec.kind,
)
@pytest.mark.parametrize("parts", [[1] * T, [5, 1, 9, 6]], ids=str)
def test_decoding_is_one_pass_over_the_text_in_pieces(spec: Mixer, parts: list[int]) -> None:
    layer = layer_of(spec, D)
    cache, start, found = layer.new_cache(1, T, torch.float64), 0, []
    with torch.no_grad():
        for piece in X.split(parts, dim=1):
            found.append(layer(piece, ForwardPass.of(piece, start), cache))
            start += piece.shape[1]
        expected = layer(X, ForwardPass.of(X))
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())
    resolved = spec.resolve(D)
    assert resolved.cache_elements(1) == resolved.cache_elements(1_000_000) == cache.nbytes // 8


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"kind": "rg_lru", "heads": 3}, "heads: 3 heads do not divide 128 features; set features"),
        ({"kind": "mlstm", "heads": 3}, "heads: 6 heads do not divide 128 features; set head_dim"),
        ({"kind": "hgrn2", "chunk": 12}, "chunk: must be a power of two, not 12"),
        ({"kind": "short_conv", "width": 1}, "width: .*2"),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.mixer\." + reason):
        zoo.load("small", **{"block.mixer": mixer})


def test_a_short_conv_needs_a_norm() -> None:
    with pytest.raises(zoo.SpecError, match="grows with power 3 of its input: it needs a norm"):
        zoo.load("small", **{"block.mixer": "short_conv", "block.norm": "none"})
