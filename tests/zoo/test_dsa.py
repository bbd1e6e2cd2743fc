"""DeepSeek's sparse attention against its equations, query by query."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import layer_of, random_stream, run
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers._block_heads import chosen
from zoo.mixers.dsa import DeepSeekSparseAttention
from zoo.site import ForwardPass

T, D, H, N, RHO, V = 11, 12, 3, 5, 4, 6
HEADS, DIM, TOP = 4, 7, 4


def spec_of(**edits: Any) -> DeepSeekSparseAttention:
    sizes = {"heads": H, "kv_rank": 8, "nope_dim": N, "rope_dim": RHO, "v_dim": V, "q_rank": 9}
    return DeepSeekSparseAttention(**sizes | {"index_heads": HEADS, "index_dim": DIM, "top_k": TOP} | edits)


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def turned(x: Tensor, place: int, *, halves: bool) -> Tensor:
    """RoPE of one vector: pairs of neighbours, or of features half the vector apart, as complex numbers."""
    angles = place * 10000.0 ** (-torch.arange(0, len(x), 2, dtype=torch.float64) / len(x))
    a, b = x.chunk(2) if halves else (x[::2], x[1::2])
    pairs = torch.view_as_real(torch.polar(torch.ones_like(angles), angles) * torch.complex(a, b))
    return pairs.T.flatten() if halves else pairs.flatten()


def index_scores(layer: Any, x: Tensor, read: Tensor) -> Tensor:
    """Equation 1: (T, T), with the released model's factors."""
    own = layer.indexer
    keys = F.layer_norm(x @ own.k.weight.T, (DIM,), own.k_norm.gain, own.k_norm.bias, 1e-6)
    queries, weights = (read @ own.q.weight.T).view(T, HEADS, DIM), x @ own.weights.weight.T
    scores = torch.full((T, T), -math.inf, dtype=torch.float64)
    for t in range(T):
        for s in range(t + 1):
            k = torch.cat((turned(keys[s, :RHO], s, halves=True), keys[s, RHO:]))
            total = 0.0
            for j in range(HEADS):
                q = torch.cat((turned(queries[t, j, :RHO], t, halves=True), queries[t, j, RHO:]))
                total += (weights[t, j] / math.sqrt(HEADS) * F.relu(q @ k) / math.sqrt(DIM)).item()
            scores[t, s] = total
    return scores


def best(scores: Tensor, count: int) -> list[int]:
    """Indices of the largest scores; equal ones go to the earlier index."""
    return sorted(range(len(scores)), key=lambda s: -scores[s].item())[:count]


@torch.no_grad()
def slow(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """(T, D), and the mean KL divergence that the indexer learns by."""
    read = rms(x @ layer.q_down.weight.T, layer.q_norm.gain)
    latent, rope = (x @ layer.kv_down.weight.T).split((8, RHO), dim=-1)
    latent = rms(latent, layer.kv_norm.gain)
    queries = (read @ layer.q.weight.T).view(T, H, N + RHO)
    keys, values = (latent @ layer.k.weight.T).view(T, H, N), (latent @ layer.v.weight.T).view(T, H, V)
    scores, out, divergence = index_scores(layer, x, read), [], []
    for t in range(T):
        taken = best(scores[t, : t + 1], TOP)
        heads, mean = [], torch.zeros(len(taken), dtype=torch.float64)
        for h in range(H):
            q = torch.cat((queries[t, h, :N], turned(queries[t, h, N:], t, halves=False)))
            k = [torch.cat((keys[s, h], turned(rope[s], s, halves=False))) for s in taken]
            weights = torch.softmax(torch.stack([q @ each for each in k]) / math.sqrt(N + RHO), dim=0)
            heads.append(weights @ values[taken, h])
            mean += weights / H
        guess = torch.softmax(scores[t, taken], dim=0)
        divergence.append((mean * (mean / guess).log()).sum())
        out.append(torch.cat(heads) @ layer.o.weight.T)
    return torch.stack(out), torch.stack(divergence).mean()


def test_a_query_attends_to_the_keys_that_the_indexer_scores_highest() -> None:
    layer: Any = layer_of(spec_of(), D)
    x = random_stream(T, D)
    expected, divergence = slow(layer, x[0])
    torch.testing.assert_close(run(layer, x), expected, rtol=1e-5, atol=1e-5)
    step = ForwardPass.of(torch.zeros(1, T))
    torch.testing.assert_close(run(layer.train(), x, step), expected, rtol=1e-5, atol=1e-5)
    assert step.losses[0].item() == pytest.approx(divergence.item(), rel=1e-5)
    half, halved = layer_of(spec_of(index_loss=0.5), D).train(), ForwardPass.of(torch.zeros(1, T))
    run(half, x, halved)
    assert halved.losses[0].item() == pytest.approx(divergence.item() / 2, rel=1e-5)


def test_the_indexer_learns_by_its_own_loss_alone_and_nothing_else_does() -> None:
    layer: Any = layer_of(spec_of(), D).train()
    x, step = random_stream(T, D).requires_grad_(), ForwardPass.of(torch.zeros(1, T))
    out = layer(x, step)
    step.losses[0].backward(retain_graph=True)
    assert x.grad is None
    learning = {name for name, p in layer.named_parameters() if p.grad is not None and p.grad.any()}
    assert learning == {name for name, _ in layer.named_parameters() if name.startswith("indexer.")}
    layer.zero_grad()
    out.sum().backward()
    assert not any(p.grad is not None and p.grad.any() for p in layer.indexer.parameters())


def test_a_choice_of_all_keys_is_latent_attention() -> None:
    sizes = {"heads": 4, "kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "v_dim": 5}
    spec = zoo.load("small", d_model=24, n_layers=2, **{"block.mixer": {"kind": "dsa", **sizes, "top_k": 64}})
    model, tokens = random_model(spec), random_tokens(spec, 2, 13)
    plain = random_model(spec.edit({"block.mixer": {"kind": "mla", **sizes}}))
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "indexer" not in k})
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), plain(tokens), rtol=1e-4, atol=1e-5)


def test_of_equal_scores_the_earlier_place_is_taken_wherever_it_is_held() -> None:
    scores = torch.tensor([[[0.0, 2.0, 0.0, 0.0]]])
    seen = torch.tensor([[True, True, True, False]])
    assert chosen(scores, seen, torch.tensor([4, 1, 2, 3]), 2).tolist() == [[[1, 2]]]
    assert chosen(scores, seen, torch.tensor([2, 1, 4, 3]), 2).tolist() == [[[1, 0]]]


def test_without_a_loss_the_indexer_costs_forward_passes_alone() -> None:
    edits = {"kind": "dsa", "kv_rank": 10, "nope_dim": 7, "rope_dim": 6, "index_loss": 0.0}
    spec = zoo.load("small", d_model=24, n_layers=1, **{"block.mixer": edits})
    cost, plain = zoo.cost(spec, 16), zoo.cost(spec.edit({"block.mixer": {**edits, "index_loss": 1.0}}), 16)
    assert cost.flops_per_token_forward == plain.flops_per_token_forward
    mixer: Any = spec.layers[0].mixer
    heads, features = mixer.index_heads, mixer.index_dim
    projecting = 2 * 24 * (heads * features + features + heads)
    scoring = 8.5 * 2 * heads * (features + 1)  # of 16 tokens each reads 8.5 on average
    assert plain.flops_per_token - cost.flops_per_token == pytest.approx(projecting + 2 * scoring)


def test_an_encoder_cannot_choose() -> None:
    mixer = {"kind": "dsa", "kv_rank": 10, "nope_dim": 7, "rope_dim": 6}
    with pytest.raises(zoo.SpecError, match="dsa is causal: it cannot be used in an encoder or with visible: prefix"):
        zoo.load("small", d_model=24, visible="all", **{"block.mixer": mixer})


def test_an_index_too_narrow_for_positions_is_refused() -> None:
    with pytest.raises(zoo.SpecError, match=r"index_dim: must be at least rope_dim \(6\), not 4"):
        spec_of(index_dim=4, rope_dim=6).resolve(D)
