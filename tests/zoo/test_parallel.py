"""Attention and a state side by side: the sum of what each computes alone, cached and not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from tests.zoo.slow import close, convolved, layer_of, linear, maps, mix, project, random_stream, run, write
from zoo.mixers.attention import Attention
from zoo.mixers.mamba2 import Mamba2
from zoo.mixers.parallel import Parallel
from zoo.norms.none import NoNorm
from zoo.positions.nope import NoPE

D, T = 12, 9
X = random_stream(T, D)
HEADS, FEATURES, STATE = 2, 3, 4


def slow_mamba2(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """S_t = exp(−A Δ_t) S_{t−1} + Δ_t b_t x_tᵀ, y_t = S_tᵀ c_t + D x_t, out = W_o (y ⊙ silu(W_z u)), a token at a time:
    arXiv:2405.21060. x: (1, T, D) → (T, D)."""
    u = x[0]
    read = torch.cat([linear(getattr(layer, name), u) for name in "xbc"], -1)
    read = torch.nn.functional.silu(convolved(read, layer.conv.weight.detach()) + layer.conv.bias.detach())
    values, b, c = read.split([HEADS * FEATURES, STATE, STATE], -1)
    delta = torch.nn.functional.softplus(linear(layer.forget, u) + layer.decay.step_bias.detach())  # (T, H)
    rate = layer.decay.log_rate.detach().exp()
    state, out = torch.zeros(HEADS, STATE, FEATURES, dtype=torch.float64), []
    for t in range(T):
        heads = []
        for h in range(HEADS):
            own = values[t, h * FEATURES : (h + 1) * FEATURES]
            state[h] = (-rate[h] * delta[t, h]).exp() * state[h] + delta[t, h] * torch.outer(b[t], own)
            heads.append(state[h].T @ c[t] + layer.skip.detach()[h] * own)
        out.append(torch.cat(heads))
    gated = torch.stack(out) * torch.nn.functional.silu(linear(layer.gate, u))
    return gated @ layer.o.weight.detach().T


def slow_attention(layer: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (project(layer, name, x, 2) for name in "qkv")
    return write(layer, mix(maps(q, k, lambda q, k, h: float(q @ k) / 6**0.5), v))


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.3, 2.5)], ids=str)
def test_both_read_the_stream_and_their_outputs_are_added(scales: tuple[float, float]) -> None:
    state = Mamba2(heads=HEADS, head_dim=FEATURES, state=STATE, chunk=4, head_norm=NoNorm())
    spec = Parallel(
        attention=Attention(heads=2, position=NoPE()), state=state, attention_scale=scales[0], state_scale=scales[1]
    )
    layer: Any = layer_of(spec, D)
    expected = scales[0] * slow_attention(layer.attention, X) + scales[1] * slow_mamba2(layer.state, X)
    close(run(layer, X), expected)


def model(**attention: Any) -> zoo.Decoder:
    mixer = {
        "kind": "parallel",
        "attention": {"heads": 2, **attention},
        "state": {"kind": "gated_deltanet", "heads": 2, "head_dim": 4, "v_dim": 5, "chunk": 4},
    }
    return zoo.build(zoo.load("small", d_model=16, n_layers=2, **{"block.mixer": mixer})).eval()


def test_a_cache_has_a_part_for_each_and_its_bytes_are_declared() -> None:
    decoder = model(window=3)
    mixer = decoder.spec.layers[0].mixer
    assert mixer.cached() == mixer.attention.cached()
    cache = decoder.new_cache(2, 11)
    assert [list(layer.parts) for layer in cache.layers] == [["attention", "state"]] * 2
    assert cache.nbytes == zoo.cost(decoder.spec, 11).cache_bytes(2, 11)


def test_a_mistake_inside_is_named_by_its_path() -> None:
    with pytest.raises(zoo.SpecError, match=r"mixer\.attention\.kv_heads: 3 kv heads do not divide"):
        model(kv_heads=3)
