"""Forget gates, value heads of their own size and exclusive attention, one head, query and key at a time in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import zoo
from tests.zoo.slow import close, convolved, layer_of, linear, maps, mix, project, run, write
from tests.zoo.test_attention_options import D, H, K, T, X, attention, dot, qkv
from zoo.caches import cache_kind
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers._heads import decay_bias
from zoo.mixers.attention import Attention
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions.nope import NoPE
from zoo.site import ForwardPass
from zoo.sparsities.chunked import Chunked
from zoo.sparsities.dilated import Dilated


def forgetting_maps(layer: Any, window: int | None) -> torch.Tensor:
    """Equation 6 of arXiv:2503.02130, by products of forget gates: (H, T, T)."""
    q, k, _ = qkv(layer)
    forget = linear(layer.forget.project, X[0]).sigmoid()  # (T, H)
    out = torch.zeros(H, T, T, dtype=torch.float64)
    for h in range(H):
        for i in range(T):
            for j in range(i + 1):
                if window is None or i - j < window:
                    out[h, i, j] = forget[j + 1 : i + 1, h].prod() * math.exp(dot(q[h, i], k[h // 2, j], h))
    return out / out.sum(-1, keepdim=True)


@pytest.mark.parametrize("window", [None, 3])
def test_forget_gates_multiply_the_exponentials(window: int | None) -> None:
    layer = attention(forget=True, window=window)
    close(run(layer, X), write(layer, mix(forgetting_maps(layer, window), qkv(layer)[2])))


@pytest.mark.parametrize("options", [{}, {"window": 4}, {"window": 4, "position": "alibi"}], ids=str)
@pytest.mark.parametrize("kind", ["plain", "paged"])
def test_forget_gates_are_read_from_a_cache_in_any_order(options: dict[str, Any], kind: str) -> None:
    spec = zoo.load("small", **{f"block.mixer.{name}": value for name, value in {"forget": True, **options}.items()})
    model, tokens = random_model(spec).double(), random_tokens(spec, 3, 23)
    left_pad = torch.tensor([0, 2, 5])
    cache = model.new_cache(3, 23, kind=cache_kind(kind))
    with torch.no_grad():
        parts = [
            model(piece, cache, None if i else left_pad) for i, piece in enumerate(tokens.split([7, 1, 1, 9, 5], 1))
        ]
        found, expected = torch.cat(parts, dim=1), model(tokens, left_pad=left_pad)
    for row, pad in enumerate(left_pad.tolist()):
        torch.testing.assert_close(found[row, pad:], expected[row, pad:], rtol=1e-4, atol=1e-4)


def test_what_a_cache_with_sinks_drops_takes_its_forget_gates_along() -> None:
    model = random_model(zoo.load("small", **{"block.mixer.forget": True}))
    with pytest.raises(zoo.UnsupportedError, match=r"mixer\.forget: dropped tokens' forget gates would be lost"):
        model.new_cache(1, 50, kind=cache_kind({"kind": "sink", "sinks": 2, "recent": 5}))


@pytest.mark.parametrize("window", [None, 3])
def test_exclusive_attention_is_orthogonal_to_the_token_itself(window: int | None) -> None:
    """Z = Y − (Yᵀ V_n) V_n of arXiv:2603.09078, the token's own value of length 1."""
    layer = attention(exclusive=True, window=window)
    q, k, v = qkv(layer)
    mixed = mix(maps(q, k, dot, window), v)
    for h in range(H):
        for t in range(T):
            own = v[h // 2, t] / v[h // 2, t].norm()
            mixed[h, t] = mixed[h, t] - (mixed[h, t] @ own) * own
            assert abs(float(mixed[h, t] @ v[h // 2, t])) < 1e-9
    close(run(layer, X), write(layer, mixed))


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({}, [0]),
        ({"window": 3}, [0]),
        ({"sparsity": Chunked(chunk=3)}, [0, 3, 6]),
        ({"sparsity": Dilated(window=2, dilation=3)}, [0, 1, 2]),
        ({"sparsity": Dilated(window=1, dilation=3)}, list(range(T))),
    ],
    ids=str,
)
@pytest.mark.parametrize("pad", [0, 2])
def test_exclusive_attention_leaves_exactly_nothing_of_a_token_alone(
    options: dict[str, Any], alone: list[int], pad: int
) -> None:
    """A norm after the mixer would make much of what rounding leaves. Sinks make weights less than 1."""
    layer = attention(exclusive=True, sinks=True, **options).float()
    x = torch.cat((torch.ones(1, pad, D), X.float()), dim=1)
    step = ForwardPass.of(torch.zeros(x.shape[:2]), 0, torch.tensor([pad]) if pad else None)
    cache = layer.new_cache(1, x.shape[1], torch.float32)
    with torch.no_grad():
        whole = layer(x, step)
        singly = [
            layer(x[:, t : t + 1], ForwardPass.of(torch.zeros(1, 1), t, step.left_pad), cache)
            for t in range(x.shape[1])
        ]
    for out in (whole, torch.cat(singly, dim=1)):
        assert (out[0, pad:] == 0).all(dim=-1).nonzero()[:, 0].tolist() == alone


@pytest.mark.parametrize("options", [{}, {"gate": "feature"}, {"exclusive": True}, {"conv": 3}], ids=str)
def test_value_heads_have_a_size_of_their_own(options: dict[str, Any]) -> None:
    layer = attention(v_dim=5, **options)
    q, k, v = (linear(getattr(layer, name), X[0]) for name in "qkv")
    if "conv" in options:
        q, k, v = convolved(torch.cat((q, k, v), -1), layer.conv.weight.detach()).split([12, 6, 10], -1)
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1) for x, heads in zip((q, k, v), (H, K, K), strict=True))
    mixed = mix(maps(q, k, dot), v)
    assert mixed.shape == (H, T, 5)
    if "gate" in options:
        mixed = mixed * project(layer.gate, "project", X, H).sigmoid()
    if "exclusive" in options:
        own = torch.nn.functional.normalize(v, dim=-1).repeat_interleave(2, dim=0)
        mixed = mixed - (mixed * own).sum(-1, keepdim=True) * own
    close(run(layer, X), write(layer, mixed))


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"v_norm": RMSNorm(gain=False)}], ids=str)
def test_keys_can_be_the_values_before_norms_and_positions(options: dict[str, Any]) -> None:
    layer: Any = layer_of(Attention(heads=H, kv_heads=K, head_dim=4, keys_as_values=True, **options), D)
    q, k = project(layer, "q", X, H), project(layer, "k", X, K)
    v = k / (k.square().mean(-1, keepdim=True) + 1e-6).sqrt() if "v_norm" in options else k

    def turned(x: torch.Tensor) -> torch.Tensor:
        """Pairs (i, i + 2) of four features, by m·θ_i."""
        angles = torch.arange(T)[:, None] * torch.tensor([1.0, 1e4**-0.5], dtype=torch.float64)
        a, b = x[..., :2], x[..., 2:]
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    weights = maps(turned(q), turned(k), lambda q, k, h: float(q @ k) / 2, options.get("window"))
    close(run(layer, X), write(layer, mix(weights, v)))


def test_keys_that_are_values_spare_a_matrix() -> None:
    plain, spare = (zoo.load("small", **{"block.mixer.keys_as_values": on}) for on in (False, True))
    matrix = plain.d_model**2  # as many kv heads as heads
    parameters = [sum(p.numel() for p in zoo.build(spec).parameters()) for spec in (plain, spare)]
    assert parameters[0] - parameters[1] == plain.n_layers * matrix
    assert parameters[1] == zoo.cost(spare, 16).params


@pytest.mark.parametrize("options", [{}, {"exclusive": True}], ids=str)
def test_values_are_scaled(options: dict[str, Any]) -> None:
    """v ← 0.7 v, so that the layer's output is 0.7 times what it is without: attention is linear in values."""
    plain, scaled = attention(**options), attention(value_scale=0.7, **options)
    scaled.load_state_dict(plain.state_dict())
    close(run(scaled, X), 0.7 * run(plain, X))


@pytest.mark.parametrize("kind", ["feature", "head"])
def test_a_softplus_gate_multiplies_by_the_logarithm(kind: str) -> None:
    """log(1 + eᶻ), z = W x."""
    layer = attention(gate=f"{kind}_softplus")
    q, k, v = qkv(layer)
    gates = (1 + project(layer.gate, "project", X, H).exp()).log()
    close(run(layer, X), write(layer, mix(maps(q, k, dot), v) * gates))


def test_a_cache_holds_keys_and_values_of_their_sizes_and_a_gate() -> None:
    spec = Attention(heads=H, kv_heads=K, v_dim=5, forget=True, position=NoPE()).resolve(D)
    assert spec.cached() == ((2, 3), (2, 5), (4, 1))
    assert spec.cache_elements(10) == 10 * (6 + 10 + 4)


def test_two_layers_share_keys_and_values_of_equal_sizes_alone() -> None:
    edits = {"block.mixer.v_dim": 9, "blocks": {"reader": {"mixer.reuse_kv": True}}, "pattern": ["block", "reader"]}
    assert zoo.load("small", **edits).layers[1].mixer.borrows
    edits["blocks"] = {"reader": {"mixer.reuse_kv": True, "mixer.v_dim": 8}}
    with pytest.raises(zoo.SpecError, match="no lower layer has its own keys and values"):
        zoo.load("small", **edits)


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"block.mixer.forget": True, "visible": "all"}, "forget: forget gates need causal attention"),
        (
            {"block.mixer.exclusive": True, "block.mixer.window": 1},
            "exclusive: with a window of 1 the output is",
        ),
        ({"block.mixer.keys_as_values": True, "block.mixer.bias": True}, "bias: with keys_as_values there is no value"),
        (
            {"block.mixer.keys_as_values": True, "block.mixer.v_dim": 3},
            "keys_as_values: cannot be combined with v_dim",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **edits)


def test_one_step_reads_the_gates_of_the_pass_alone() -> None:
    """Without a cache the first token's own gate changes nothing: nothing came before it."""
    layer, changed = attention(forget=True), X.clone()
    step = ForwardPass.of(torch.zeros(1, T))
    with torch.no_grad():
        gates = layer.forget(changed, step)
        assert gates.shape == (1, H, T, 1)
        bias = decay_bias(gates, step.index, step)
        gates[:, :, 0] = 7.0
        torch.testing.assert_close(decay_bias(gates, step.index, step), bias)
