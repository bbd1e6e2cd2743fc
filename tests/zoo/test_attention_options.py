"""Every option of attention against its formula, written out slowly in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from transformers import T5Config, T5Model

import zoo
from tests.zoo.slow import layer_of, maps, mix, project, random_stream, run, write
from zoo.caches import cache_kind
from zoo.conformance.combinations import random_tokens
from zoo.mixers.attention import Attention
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions.nope import NoPE
from zoo.site import ForwardPass

D, H, K, T = 12, 4, 2, 7
X = random_stream(T, D)


def attention(**options: Any) -> Any:
    return layer_of(Attention(heads=H, kv_heads=K, position=NoPE(), **options), D)


def dot(q: torch.Tensor, k: torch.Tensor, head: int) -> float:
    return float(q @ k) / math.sqrt(D / H)


def qkv(layer: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return project(layer, "q", X, H), project(layer, "k", X, K), project(layer, "v", X, K)


@pytest.mark.parametrize("window", [None, 3])
def test_softcap_bounds_scores_before_the_softmax(window: int | None) -> None:
    layer = attention(softcap=0.8, window=window)
    q, k, v = qkv(layer)
    weights = maps(q, k, lambda q, k, h: 0.8 * math.tanh(dot(q, k, h) / 0.8), window)
    torch.testing.assert_close(run(layer, X), write(layer, mix(weights, v)), rtol=1e-5, atol=1e-6)


def test_scale_replaces_one_over_the_root_of_d() -> None:
    layer = attention(scale=0.9)
    q, k, v = qkv(layer)
    weights = maps(q, k, lambda q, k, h: 0.9 * float(q @ k))
    torch.testing.assert_close(run(layer, X), write(layer, mix(weights, v)), rtol=1e-5, atol=1e-6)


def test_a_scale_in_the_queries_is_in_no_score() -> None:
    layer = attention(scale_in="queries")
    q, k, v = qkv(layer)
    weights = maps(q, k, lambda q, k, h: float(q @ k))
    torch.testing.assert_close(run(layer, X), write(layer, mix(weights, v)), rtol=1e-5, atol=1e-6)


def test_a_scale_in_the_queries_starts_with_the_deviations_of_t5() -> None:
    theirs = T5Model(T5Config(d_model=96, d_kv=24, num_heads=4, d_ff=8, num_layers=1, vocab_size=8))
    queries = theirs.encoder.block[0].layer[0].SelfAttention.q.weight
    edits = {"d_model": 96, "n_layers": 1, "vocab_size": 8, "block.mixer.heads": 4}
    models = [zoo.build(zoo.load("small", **edits, **{"block.mixer.scale_in": at})) for at in ("queries", "scores")]
    ours, usual = (dict(model.named_parameters()) for model in models)
    (name,) = (name for name in ours if name.endswith("mixer.q.weight"))
    assert ours[name].std().item() == pytest.approx(queries.std().item(), rel=0.05)
    torch.testing.assert_close(ours[name], usual[name] / math.sqrt(24))


@pytest.mark.parametrize("window", [None, 3])
def test_a_sink_takes_its_share_of_the_softmax(window: int | None) -> None:
    layer = attention(sinks=True, window=window)
    q, k, v = qkv(layer)
    weights = maps(q, k, dot, window, sinks=layer.sinks.tolist())
    assert (weights.sum(-1) < 1).all()
    torch.testing.assert_close(run(layer, X), write(layer, mix(weights, v)), rtol=1e-5, atol=1e-6)


def test_a_sink_is_a_gate_on_the_sum_of_scores() -> None:
    """out = out without sinks · σ(lse − sink), lse the logarithm of the softmax's denominator."""
    layer = attention(sinks=True)
    q, k, v = qkv(layer)
    lse = torch.zeros(H, T, dtype=torch.float64)
    for h in range(H):
        for t in range(T):
            lse[h, t] = math.log(sum(math.exp(dot(q[h, t], k[h // 2, s], h)) for s in range(t + 1)))
    gate = torch.sigmoid(lse - layer.sinks.detach()[:, None])
    expected = write(layer, mix(maps(q, k, dot), v) * gate[..., None])
    torch.testing.assert_close(run(layer, X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["feature", "head"])
def test_a_gate_multiplies_the_heads_by_the_sigmoid_of_its_own_projection(kind: str) -> None:
    layer = attention(gate=kind)
    q, k, v = qkv(layer)
    gates = torch.sigmoid(project(layer.gate, "project", X, H))
    assert gates.shape == (H, T, 3 if kind == "feature" else 1)
    expected = write(layer, mix(maps(q, k, dot), v) * gates)
    torch.testing.assert_close(run(layer, X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("over", ["head", "heads"])
def test_queries_and_keys_can_be_normalised_after_they_are_turned(over: str) -> None:
    """Pairs (i, i + d/2) are turned by cos and sin of m·θ_i, then normalised: x / rms(x) · g."""
    norm = {"qk_norm": RMSNorm(eps=1e-3), "qk_norm_over": over, "qk_norm_after_position": True}
    layer: Any = layer_of(Attention(heads=H, kv_heads=K, head_dim=4, **norm), D)

    def turned(name: str, heads: int) -> torch.Tensor:
        x, out = project(layer, name, X, heads), torch.zeros(heads, T, 4, dtype=torch.float64)
        for h, m in itertools.product(range(heads), range(T)):
            for i, theta in enumerate((1.0, 1e4**-0.5)):
                a, b = x[h, m, i], x[h, m, i + 2]
                out[h, m, i] = a * math.cos(m * theta) - b * math.sin(m * theta)
                out[h, m, i + 2] = b * math.cos(m * theta) + a * math.sin(m * theta)
            own = getattr(layer, f"{name}_norm")
            gain = (own.norms[h] if over == "heads" else own).gain.detach()
            out[h, m] = out[h, m] / (out[h, m].square().mean() + 1e-3).sqrt() * gain
        return out

    weights = maps(turned("q", H), turned("k", K), lambda q, k, h: float(q @ k) / 2)
    expected = write(layer, mix(weights, project(layer, "v", X, K)))
    torch.testing.assert_close(run(layer, X), expected, rtol=1e-5, atol=1e-5)


def test_what_was_normalised_after_it_was_turned_cannot_move() -> None:
    edits = {"block.mixer.qk_norm": "rmsnorm", "block.mixer.qk_norm_after_position": True}
    with pytest.raises(zoo.UnsupportedError, match="they were normalised after rotation"):
        zoo.build(zoo.load("small", **edits)).new_cache(
            1, 9, kind=cache_kind({"kind": "sink", "sinks": 1, "recent": 4})
        )
    with pytest.raises(zoo.SpecError, match="qk_norm_over: full cannot be combined with"):
        zoo.load("small", **edits, **{"block.mixer.qk_norm_over": "full"})


@pytest.mark.parametrize("offset", [0, 1])
def test_temperature_grows_with_the_place_of_the_query(offset: int) -> None:
    layer = attention(temperature={"coefficient": 0.7, "floor": 3, "offset": offset})
    q, k, v = qkv(layer)
    for t in range(T):
        q[:, t] *= 1 + 0.7 * math.log(1 + (t + offset) // 3)
    torch.testing.assert_close(run(layer, X), write(layer, mix(maps(q, k, dot), v)), rtol=1e-5, atol=1e-6)


def test_clipping_bounds_queries_keys_and_values() -> None:
    layer = attention(clip_qkv=0.6, bias=["q", "v"])
    q, k, v = (part.clamp(-0.6, 0.6) for part in qkv(layer))
    assert all((part.abs() == 0.6).any() and (part.abs() < 0.6).any() for part in (q, k, v))
    torch.testing.assert_close(run(layer, X), write(layer, mix(maps(q, k, dot), v)), rtol=1e-5, atol=1e-6)


def test_values_are_mixed_with_those_of_the_first_layer() -> None:
    """V'_n = λ_n1 V_n + λ_n2 V_1, where V_1 is what the first layer projects, not what it mixes."""
    layers = [
        layer_of(Attention(heads=H, kv_heads=K, position=NoPE(), value_residual=True), D, seed) for seed in range(3)
    ]
    streams, step = [random_stream(T, D, seed) for seed in range(3)], ForwardPass.of(torch.zeros(1, T))
    first = project(layers[0], "v", streams[0], K)
    for layer, x in zip(layers, streams, strict=True):
        own, of_first = layer.values.weights.tolist()
        v = own * project(layer, "v", x, K) + of_first * first
        weights = maps(project(layer, "q", x, H), project(layer, "k", x, K), dot)
        torch.testing.assert_close(run(layer, x, step), write(layer, mix(weights, v)), rtol=1e-5, atol=1e-6)


def test_value_residual_starts_halfway_and_reaches_the_first_layer_backwards() -> None:
    spec = zoo.load("small", d_model=24, n_layers=3, **{"block.mixer.value_residual": True, "init.output": "plain"})
    model = zoo.build(spec)
    assert [block.mixer.values.weights.tolist() for block in model.blocks] == [[0.5, 0.5]] * 3
    seen: list[torch.Tensor] = []
    model.blocks[0].mixer.v.register_forward_hook(lambda module, args, out: seen.append(out))
    model.blocks[0].mixer.o.weight.requires_grad_(False).zero_()
    tokens = random_tokens(spec, 1, 9)
    loss = model.loss(tokens, tokens)[0]
    assert torch.autograd.grad(loss, seen[0])[0].abs().max() > 0


@pytest.mark.parametrize("change", [{"mixer.kv_heads": 2}, {"mixer.head_dim": 12}])
def test_values_of_other_widths_cannot_be_mixed(change: dict[str, int]) -> None:
    edits = {"d_model": 24, "block.mixer.value_residual": True, "pattern": ["block", "other"]}
    with pytest.raises(zoo.SpecError) as error:
        zoo.load("small", **edits, blocks={"other": change})
    assert error.value.path == "blocks.other.mixer"
    assert error.value.reason.startswith("value_residual needs values of the same shape: ")
    assert error.value.reason.endswith(" here, 4 heads of 6 features in block")


def test_layers_without_value_residual_may_have_any_width() -> None:
    blocks = {"other": {"mixer.kv_heads": 2, "mixer.value_residual": False}}
    spec = zoo.load(
        "small", d_model=24, blocks=blocks, pattern=["block", "other"], **{"block.mixer.value_residual": True}
    )
    tokens = random_tokens(spec, 1, 5)
    assert zoo.build(spec)(tokens).isfinite().all()
