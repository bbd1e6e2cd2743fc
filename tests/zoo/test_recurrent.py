"""Mixers with a state: against their papers' recurrences, one token and head at a time in float64. What
transformers has of them is compared by model, in `tests/zoo/hf`."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.slow import close, convolved, layer_of, linear, maps, mix, project, random_stream, rms, run, write
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.mixers import Mixer
from zoo.mixers._delta import delta_scan, product_scan, unit_inverse
from zoo.mixers._scan import scan
from zoo.mixers.attention import Attention
from zoo.mixers.gated_deltanet import GatedDeltaNet
from zoo.mixers.gla import GatedLinearAttention
from zoo.mixers.kda import KimiDeltaAttention
from zoo.mixers.lightning import LightningAttention
from zoo.mixers.linear_attention import LinearAttention
from zoo.mixers.mamba import Mamba
from zoo.mixers.mamba2 import Mamba2
from zoo.mixers.mamba3 import Mamba3
from zoo.mixers.retention import Retention
from zoo.mixers.rwkv6 import RWKV6
from zoo.mixers.rwkv7 import RWKV7
from zoo.mixers.titans import Titans
from zoo.positions.nope import NoPE
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass

D, T = 12, 21
X = random_stream(T, D)
MIXERS: dict[str, Mixer] = {
    "linear_attention": LinearAttention(heads=3, head_dim=5),
    "linear_attention with conv": LinearAttention(heads=3, head_dim=5, conv=3),
    "retention": Retention(heads=3, head_dim=4, v_dim=5),
    "gated_deltanet": GatedDeltaNet(heads=4, k_heads=2, head_dim=5, v_dim=3),
    "gla": GatedLinearAttention(heads=3, head_dim=4, v_dim=5, rank=2),
    "gated_deltanet with products": GatedDeltaNet(heads=4, k_heads=2, head_dim=5, v_dim=3, householders=3, conv=None),
    "kda": KimiDeltaAttention(heads=3, head_dim=5),
    "kda with a floor": KimiDeltaAttention(heads=3, head_dim=4, low_rank=False, decay_floor=-5.0),
    "lightning": LightningAttention(heads=3, head_dim=5),
    "mamba": Mamba(inner=7, state=3),
    "rwkv6": RWKV6(heads=3),
    "rwkv7": RWKV7(heads=3),
    "mamba2": Mamba2(heads=4, head_dim=3, state=5, groups=2, bias=True),
    "mamba3": Mamba3(heads=4, head_dim=3, state=5, groups=2),
    "titans": Titans(heads=3, head_dim=5),
    "mamba3 with ranks": Mamba3(heads=4, head_dim=3, state=5, groups=2, rank=3),
}
KINDS = (
    "linear_attention",
    "retention",
    "gated_deltanet",
    "gla",
    "kda",
    "lightning",
    "mamba",
    "mamba2",
    "mamba3",
    "titans",
    "rwkv6",
    "rwkv7",
)
every_mixer = pytest.mark.parametrize("spec", MIXERS.values(), ids=MIXERS)
every_chunk = pytest.mark.parametrize("chunk", [1, 4, 8, 64])


@every_chunk
@pytest.mark.parametrize("conv", [None, 3])
def test_linear_attention_is_its_sums(chunk: int, conv: int | None) -> None:
    """Equation 9 of the paper, without a state."""
    layer: Any = layer_of(LinearAttention(heads=3, head_dim=5, chunk=chunk, conv=conv), D)
    q, k, v = (project(layer, name, X, 3) for name in "qkv")
    if conv:
        joined = convolved(torch.cat([part.transpose(0, 1).flatten(1) for part in (q, k, v)], -1), layer.conv.weight)
        q, k, v = (part.unflatten(-1, (3, 5)).transpose(0, 1) for part in joined.detach().chunk(3, dim=-1))
    out = torch.zeros_like(v)
    for h in range(3):
        for i in range(T):
            weights = [float((F.elu(q[h, i]) + 1) @ (F.elu(k[h, j]) + 1)) for j in range(i + 1)]
            values = [weight * v[h, j] for j, weight in enumerate(weights)]
            out[h, i] = torch.stack(values).sum(0) / (sum(weights) + 1e-6)
    close(run(layer, X), write(layer, out))


GAMMAS = {"powers": [31 / 32, 63 / 64, 127 / 128], "spread": [31 / 32, 127 / 128, 511 / 512]}
"""γ of three heads: 1 − γ halves from one to the next, or its logarithm is spread evenly from 1/32 to 1/512."""


@every_chunk
@pytest.mark.parametrize("decays", GAMMAS)
def test_retention_is_its_recurrence(chunk: int, decays: Literal["powers", "spread"]) -> None:
    """Equation 6 of the paper, with its decay, its norm over each head, and its gate."""
    spec = Retention(heads=3, head_dim=4, v_dim=5, position=NoPE(), chunk=chunk, decays=decays)
    layer: Any = layer_of(spec, D)
    q, k, v, gate = (project(layer, name, X, 3) for name in ("q", "k", "v", "gate"))
    out = torch.zeros_like(v)
    for h in range(3):
        state = torch.zeros(4, 5, dtype=torch.float64)
        norm = layer.head_norm.norms[h]
        for t in range(T):
            state = GAMMAS[decays][h] * state + torch.outer(k[h, t], v[h, t])
            read = state.T @ q[h, t] / math.sqrt(4)
            read = (read - read.mean()) / (read.var(correction=0) + 1e-5).sqrt()
            out[h, t] = (read * norm.gain + norm.bias).detach() * F.silu(gate[h, t])
    close(run(layer, X), write(layer, out))


def test_retention_decays_between_rotated_queries_and_keys() -> None:
    """Its parallel form: (QKᵀ ⊙ D) V, with D_ij = γ^(i−j) and RoPE."""
    layer: Any = layer_of(Retention(heads=2, head_dim=6, v_dim=5, chunk=4), D)
    step = ForwardPass.of(torch.zeros(1, T))
    q, k = (layer.position.rotate_queries(project(layer, name, X, 2)[None], step)[0] for name in "qk")
    v, gate = project(layer, "v", X, 2), project(layer, "gate", X, 2)
    distance = torch.arange(T)[:, None] - torch.arange(T)
    gamma = (1 - 2.0 ** (-5 - torch.arange(2, dtype=torch.float64)))[:, None, None]
    decay = torch.where(distance >= 0, gamma**distance, 0.0)
    read = (q @ k.transpose(-1, -2) / math.sqrt(6) * decay) @ v
    out = torch.stack([norm(head).detach() for norm, head in zip(layer.head_norm.norms, read, strict=True)])
    close(run(layer, X), write(layer, out * F.silu(gate)))


@every_chunk
@pytest.mark.parametrize("k_heads", [1, 2, 4])
def test_gated_deltanet_is_its_recurrence(chunk: int, k_heads: int) -> None:
    """Equation 10 of the paper."""
    layer: Any = layer_of(GatedDeltaNet(heads=4, k_heads=k_heads, head_dim=5, v_dim=3, chunk=chunk), D)
    parts = torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], -1)
    parts = F.silu(convolved(parts, layer.conv.weight.detach())).split([5 * k_heads, 5 * k_heads, 12], -1)
    q, k, v = (part.unflatten(-1, (-1, width)) for part, width in zip(parts, (5, 5, 3), strict=True))
    strength, raw, gate = (linear(getattr(layer, name), X[0]) for name in ("strength", "forget", "gate"))
    rate, bias = layer.decay.log_rate.detach().exp(), layer.decay.step_bias.detach()
    out = torch.zeros(4, T, 3, dtype=torch.float64)
    for h in range(4):
        state = torch.zeros(3, 5, dtype=torch.float64)
        for t in range(T):
            key, query = (F.normalize(x[t, h * k_heads // 4], dim=0) for x in (k, q))
            alpha = math.exp(-rate[h] * F.softplus(raw[t, h] + bias[h]))
            beta = strength[t, h].sigmoid()
            forgetting = torch.eye(5, dtype=torch.float64) - beta * torch.outer(key, key)
            state = alpha * state @ forgetting + beta * torch.outer(v[t, h], key)
            read = rms(state @ query / math.sqrt(5), layer.head_norm.gain.detach(), 1e-6)
            out[h, t] = read * F.silu(gate[t, 3 * h : 3 * h + 3])
    torch.testing.assert_close(run(layer, X), write(layer, out), rtol=1e-4, atol=1e-4)


@every_chunk
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_mamba2_is_its_recurrence(chunk: int, groups: int) -> None:
    """Equation 1 of the paper with the discretisation of its Listing 1."""
    layer: Any = layer_of(Mamba2(heads=4, head_dim=3, state=5, groups=groups, chunk=chunk, bias=True), D)
    parts = torch.cat([linear(getattr(layer, name), X[0]) for name in "xbc"], -1)
    parts = convolved(parts, layer.conv.weight.detach()) + layer.conv.bias.detach()
    x, b, c = F.silu(parts).split([12, 5 * groups, 5 * groups], -1)
    step = F.softplus(linear(layer.forget, X[0]) + layer.decay.step_bias.detach())
    rate = layer.decay.log_rate.detach().exp()
    out = torch.zeros(T, 12, dtype=torch.float64)
    for h in range(4):
        group, own = slice(5 * (h * groups // 4), 5 * (h * groups // 4) + 5), slice(3 * h, 3 * h + 3)
        state = torch.zeros(3, 5, dtype=torch.float64)
        for t in range(T):
            state = math.exp(-rate[h] * step[t, h]) * state + step[t, h] * torch.outer(x[t, own], b[t, group])
            out[t, own] = state @ c[t, group] + layer.skip[h].detach() * x[t, own]
    gated = (out * F.silu(linear(layer.gate, X[0]))).unflatten(-1, (groups, -1))
    gains = torch.stack([norm.gain.detach() for norm in layer.head_norm.norms])
    close(run(layer, X), linear(layer.o, rms(gated, gains, 1e-5).flatten(1)))


@every_mixer
@pytest.mark.parametrize("parts", [[1] * T, [5, 1, 9, 6], [17, 4]], ids=str)
def test_the_recurrent_form_is_the_chunked_one(spec: Mixer, parts: list[int]) -> None:
    """Both forms agree to 1e-4 in float32."""
    layer = layer_of(spec.model_copy(update={"chunk": 4}), D).float()
    x = X.float()
    cache, start, found = layer.new_cache(1, T, torch.float32), 0, []
    with torch.no_grad():
        for piece in x.split(parts, dim=1):
            found.append(layer(piece, ForwardPass.of(piece, start), cache))
            start += piece.shape[1]
        expected = layer(x, ForwardPass.of(x))
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@every_mixer
def test_the_state_does_not_grow_with_the_text(spec: Mixer) -> None:
    resolved = spec.resolve(D)
    assert resolved.cache_elements(1) == resolved.cache_elements(1_000_000) > 0


@every_mixer
def test_results_do_not_depend_on_the_chunk(spec: Mixer) -> None:
    outs = [run(layer_of(spec.model_copy(update={"chunk": chunk}), D), X) for chunk in (1, 2, 16, 32)]
    for out in outs[1:]:
        close(out, outs[0])


@every_mixer
def test_budgets_count_the_same_work_whatever_the_chunk(spec: Mixer) -> None:
    """The counted work is that of the recurrence; executed work depends on the chunk, except where it is the recurrence
    itself."""
    costs = [spec.model_copy(update={"chunk": chunk}).resolve(D).cost(D, 96) for chunk in (1, 8, 64, 128)]
    assert len({cost.flops for cost in costs}) == len({cost.flops_square for cost in costs}) == 1
    assert len({cost.flops_executed for cost in costs}) == (1 if spec.kind == "mamba" else len(costs))


@every_mixer
def test_the_recurrence_costs_the_same_at_every_length(spec: Mixer) -> None:
    resolved = spec.resolve(D)
    assert resolved.cost(D, 1).flops == resolved.cost(D, 7).flops == resolved.decode_flops(D, 1000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("chunk", "length"), [(1, 1), (1, 6), (2, 1), (8, 1), (8, 2), (8, 21)])
def test_the_products_of_chunks_are_those_counted(kind: str, chunk: int, length: int) -> None:
    spec = zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **{"block.mixer": {"kind": kind, "chunk": chunk}})
    model, tokens = random_model(spec), random_tokens(spec, 2, length + 1)
    # What a single token forgets changes nothing, and sends no gradient back: there, of the forward pass alone.
    passes = 3 if length > 1 else 1
    with torch.set_grad_enabled(passes == 3), counted(model, passes) as count:
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])[0]
        if passes == 3:
            loss.backward()
    declared = zoo.cost(spec, context=length).flops_per_token_executed * passes / 3
    assert count.total / (2 * length) == pytest.approx(declared, rel=1e-9)


def test_a_state_that_forgets_at_once_overflows_nothing() -> None:
    """Decays of e^−50 a token: their ratios over a chunk are beyond any float, and are not computed."""
    for spec in (GatedDeltaNet(heads=2, head_dim=4, v_dim=4), Mamba2(heads=2, head_dim=4, state=4)):
        layer: Any = layer_of(spec, D).float()
        with torch.no_grad():
            layer.decay.log_rate.fill_(4.0)
            layer.decay.step_bias.fill_(1.0)
        x = random_stream(130, D).float().requires_grad_()
        layer(x, ForwardPass.of(x)).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("part", "shape", "words"),
    [
        ("k", (2, 2, 4, 3), r"^k: expected \(B, G, T, n\), as q, here \(2, 2, 5, 3\), not \(2, 2, 4, 3\)$"),
        ("v", (2, 3, 5, 4), r"^v: must have a multiple of the 2 heads of q and k, not 3$"),
        ("v", (2, 4, 5), r"^v: expected \(B, heads, T, features\), not \(2, 4, 5\)$"),
        ("decay", (2, 4, 10), r"^decay: expected \(B, H, T\) or \(B, H, T, n\), here \(2, 4, 5\), not \(2, 4, 10\)$"),
        ("strength", (2, 4, 5, 1), r"^strength: expected \(B, H, T\), here \(2, 4, 5\), not \(2, 4, 5, 1\)$"),
    ],
)
def test_a_part_of_the_wrong_shape_is_named(part: str, shape: tuple[int, ...], words: str) -> None:
    shapes = {"q": (2, 2, 5, 3), "k": (2, 2, 5, 3), "v": (2, 4, 5, 4), "decay": (2, 4, 5), "strength": (2, 4, 5)}
    parts = {name: torch.zeros(*(shape if name == part else size)) for name, size in shapes.items()}
    with pytest.raises(ValueError, match=words):
        delta_scan(**parts, chunk=8)
    if part != "strength":
        del parts["strength"]
        with pytest.raises(ValueError, match=words):
            scan(**parts, chunk=8)


def test_steps_of_a_token_are_rows_of_its_keys_and_not_of_its_decay() -> None:
    rows = {"q": (1, 2, 3, 4), "k": (1, 2, 6, 4), "v": (1, 2, 6, 4), "decay": (1, 2, 6), "strength": (1, 2, 6)}
    words = r"^decay: expected \(B, H, T\), T the tokens of q, here \(1, 2, 3\), not \(1, 2, 6\)$"
    with pytest.raises(ValueError, match=words):
        product_scan(**{name: torch.zeros(*size) for name, size in rows.items()}, chunk=8)
    rows |= {"decay": (1, 2, 3), "k": (1, 2, 7, 4)}
    with pytest.raises(
        ValueError, match=r"^k: expected \(B, G, T, n\), as q, here \(1, 2, 6, 4\), not \(1, 2, 7, 4\)$"
    ):
        product_scan(**{name: torch.zeros(*size) for name, size in rows.items()}, chunk=8)


def test_the_inverse_of_a_unit_triangle() -> None:
    lower = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tril(-1)
    unit = lower + torch.eye(32, dtype=torch.float64)
    expected = torch.linalg.solve_triangular(unit, torch.eye(32, dtype=torch.float64), upper=False, unitriangular=True)
    torch.testing.assert_close(unit_inverse(lower), expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize("window", [None, 4])
def test_attention_with_a_convolution_reads_convolved_queries_keys_and_values(window: int | None) -> None:
    layer: Any = layer_of(Attention(heads=4, kv_heads=2, conv=3, window=window, position=NoPE()), D)
    joined = convolved(
        torch.cat([linear(getattr(layer, name), X[0]) for name in "qkv"], -1), layer.conv.weight.detach()
    )
    q, k, v = (part.unflatten(-1, (-1, 3)).transpose(0, 1) for part in joined.split([12, 6, 6], -1))
    weights = maps(q, k, lambda q, k, head: float(q @ k) / math.sqrt(3), window)
    close(run(layer, X), write(layer, mix(weights, v)))


def test_a_cache_with_a_convolution_reorders_both_of_its_parts() -> None:
    spec = zoo.load("small", **{"block.mixer.conv": 4})
    model, tokens = random_model(spec), random_tokens(spec, 3, 12)
    rows, cache = torch.tensor([2, 0, 0]), model.new_cache(3, 12)
    with torch.no_grad():
        model(tokens[:, :9], cache)
        cache.reorder(rows)
        assert cache.nbytes == zoo.cost(spec).cache_bytes(3, 12)
        after = model(tokens[:, 9:], cache)
        expected = model(torch.cat((tokens[rows, :9], tokens[:, 9:]), dim=1))[:, 9:]
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_reordered_with_their_rows(kind: str) -> None:
    spec = zoo.load("small", **{"block.mixer": {"kind": kind, "chunk": 4}})
    model, tokens = random_model(spec), random_tokens(spec, 2, 11)
    rows, cache = torch.tensor([1, 1]), model.new_cache(2, 11)
    with torch.no_grad():
        model(tokens[:, :9], cache)
        cache.reorder(rows)
        after = model(tokens[:, 9:], cache)
        expected = model(torch.cat((tokens[rows, :9], tokens[:, 9:]), dim=1))[:, 9:]
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-4)


def test_the_published_sizes_hold_the_published_states() -> None:
    """Qwen3-Next: 32 value heads of 128 × 128 and a convolution of 4 over 8192 channels in each linear layer."""
    mixer = GatedDeltaNet(heads=32, k_heads=16, head_dim=128, v_dim=128).resolve(2048)
    assert mixer.cache_elements(262_144) == 32 * 128 * 128 + 3 * 8192
    ours = Mamba2(heads=80, head_dim=64, state=128).resolve(2560)
    assert ours.cache_elements(1) == 80 * 64 * 128 + 3 * (5120 + 2 * 128)


def test_a_hybrid_keeps_keys_of_its_attention_alone() -> None:
    edits = {"block.mixer": "mamba2", "blocks.attn.mixer": "attention", "pattern": ["block", "block", "block", "attn"]}
    spec = zoo.load("small", n_layers=8, **edits)
    cost, full = zoo.cost(spec), zoo.cost(zoo.load("small", n_layers=2))
    grown, grown_full = (c.cache_bytes(1, 4096) - c.cache_bytes(1, 1024) for c in (cost, full))
    assert grown == grown_full
    model, tokens = random_model(spec), random_tokens(spec, 1, 40)
    cache = model.new_cache(1, 40)
    with torch.no_grad():
        parts = torch.cat([model(chunk, cache) for chunk in tokens.split([30, *[1] * 10], dim=1)], dim=1)
        torch.testing.assert_close(parts, model(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        ({"kind": "retention", "position": "alibi"}, "position: alibi adds to attention scores, which"),
        ({"kind": "mamba2", "window": 4}, r"window: not a setting of mamba2, but of "),
        ({"kind": "linear_attention", "softcap": 3.0}, r"softcap: not a setting of linear_attention, but of "),
        ({"kind": "mamba2", "heads": 4, "groups": 3}, "groups: 3 groups do not divide 4 heads"),
        ({"kind": "gated_deltanet", "heads": 4, "k_heads": 3}, "k_heads: 3 heads of keys do not divide 4"),
        ({"kind": "gated_deltanet", "chunk": 12}, "chunk: must be a power of two, not 12"),
        ({"kind": "mamba2", "heads": 7}, "heads: 7 heads do not divide 256 features"),
        ({"kind": "retention", "heads": 7}, "heads: 7 heads do not divide d_model 128"),
        (
            {"kind": "retention", "head_dim": 5},
            "position: RoPE rotates pairs: 5 of a head's 5 features cannot be rotated",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_says_why(mixer: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.mixer\." + reason):
        zoo.load("small", **{"block.mixer": mixer})


def test_retention_turns_by_default_as_attention_does() -> None:
    assert isinstance(Retention().position, RoPE)


def test_a_shared_expert_is_gated_by_the_token() -> None:
    """σ(w·x) FFN_shared(x) beside the experts."""
    edits = {"kind": "topk_moe", "d_ff": 20, "experts": 3, "shared_experts": 1}
    gated: Any = random_model(zoo.load("small", **{"block.ffn": {**edits, "shared_gate": True}})).blocks[0].ffn.double()
    x = random_stream(5, 128)
    step = ForwardPass.of(torch.zeros(1, 5))
    with torch.no_grad():
        gate, gated.shared_gate = gated.shared_gate, None
        ungated = gated(x, step)
        gated.shared_gate = gate
        expected = ungated + (torch.sigmoid(x @ gate.weight[0]) - 1)[..., None] * gated.shared(x, step)
        torch.testing.assert_close(gated(x, step), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(zoo.SpecError, match="shared_gate: needs shared_experts"):
        zoo.load("small", **{"block.ffn": {**edits, "shared_experts": 0, "shared_gate": True}})


def test_a_block_without_an_ffn_has_its_mixer_alone() -> None:
    with_ffn = zoo.load("small", **{"block.mixer": "mamba2"})
    spec = with_ffn.edit({"block.ffn": "none"})
    model: Any = random_model(spec)
    tokens = random_tokens(spec, 1, 9)
    assert not [name for name, _ in model.named_parameters() if "ffn" in name]
    stream = model.embed(tokens, step := ForwardPass.of(tokens))
    for block in model.blocks:
        stream = stream + block.mixer(block.mixer_residual.norm_in(stream), step)
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(stream)))
    with pytest.raises(zoo.SpecError, match="topology: parallel needs a mixer and an FFN"):
        spec.edit({"block.topology": "parallel"})
