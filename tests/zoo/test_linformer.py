"""Linformer against its formula, one head, mixture and query at a time; what is refused, and how the work grows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import zoo
from tests.zoo.slow import layer_of, project, random_stream, run, write
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers.linformer import Linformer
from zoo.positions.nope import NoPE
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass
from zoo.spec import longest_text

D, T, HEADS, RANK, LONGEST = 12, 7, 4, 3, 10
X = random_stream(T, D)


def turned(x: Tensor) -> Tensor:
    """RoPE, pair by pair: x: (H, T, d) → the same shape."""
    half, out = x.shape[-1] // 2, x.clone()
    for place in range(x.shape[1]):
        for i in range(half):
            angle = place * 10_000.0 ** (-i / half)
            a, b = x[:, place, i], x[:, place, i + half]
            out[:, place, i] = a * math.cos(angle) - b * math.sin(angle)
            out[:, place, i + half] = a * math.sin(angle) + b * math.cos(angle)
    return out


def mixed(weight: Tensor, x: Tensor, own: bool) -> list[list[Tensor]]:
    """Σ_j W[i, j] x_j for each head of x: (K, T, d) and each mixture i; `own`: whether each head has a matrix."""
    found = []
    for h, head in enumerate(x):
        matrix = weight[h if own else 0]
        found.append([sum((matrix[i, j] * head[j] for j in range(len(head))), torch.zeros(())) for i in range(RANK)])
    return found


def by_hand(layer: Any, x: Tensor, kv_heads: int, share: str, rotary: bool) -> Tensor:
    """Equation 7 of the paper. → (T, D)."""
    q, k, v = project(layer, "q", x, HEADS), project(layer, "k", x, kv_heads), project(layer, "v", x, kv_heads)
    if rotary:
        q, k = turned(q), turned(k)
    e = layer.e.weight.detach()
    f = e if share == "key_value" else layer.f.weight.detach()
    keys, values = mixed(e, k, share == "none"), mixed(f, v, share == "none")
    out = torch.zeros_like(q)
    for h in range(HEADS):
        group = h // (HEADS // kv_heads)
        for t in range(q.shape[1]):
            powers = [math.exp(float(q[h, t] @ keys[group][i]) / math.sqrt(q.shape[-1])) for i in range(RANK)]
            out[h, t] = sum(power / sum(powers) * value for power, value in zip(powers, values[group], strict=True))
    return write(layer, out)


def seen_by_all(tokens: Tensor, left: int | None = None, right: int = 0) -> ForwardPass:
    step = ForwardPass.of(tokens, left_pad=None if left is None else torch.tensor([left]))
    step.mask_kind = "all"
    step.ends = torch.tensor([tokens.shape[1] - right]) if right else None
    return step


@pytest.mark.parametrize("position", [NoPE(), RoPE()], ids=["nope", "rope"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("share", ["none", "headwise", "key_value"])
def test_linformer_is_its_formula(share: Any, kv_heads: int, position: Any) -> None:
    spec = Linformer(
        heads=HEADS, kv_heads=kv_heads, head_dim=4, rank=RANK, max_length=LONGEST, share=share, position=position
    )
    layer: Any = layer_of(spec, D)
    matrices = kv_heads if share == "none" else 1
    assert layer.e.weight.shape == (matrices, RANK, LONGEST)
    assert (layer.f is None) == (share == "key_value")
    expected = by_hand(layer, X, kv_heads, share, rotary=position.kind == "rope")
    torch.testing.assert_close(run(layer, X, seen_by_all(torch.zeros(1, T))), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("left", "right"), [(0, 2), (3, 0), (3, 2)])
def test_padding_at_either_side_is_in_no_mixture(left: int, right: int) -> None:
    """Though it is not zero; and text has the columns of its places in its own row."""
    spec = Linformer(heads=HEADS, rank=RANK, max_length=LONGEST, share="none", position=NoPE(), head_dim=4)
    layer: Any = layer_of(spec, D)
    x, text = random_stream(left + T + right, D), slice(left, left + T)
    found = run(layer, x, seen_by_all(torch.zeros(x.shape[:2]), left or None, right))[text]
    expected = by_hand(layer, x[:, text], HEADS, "none", rotary=False)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def encoder(**mixer: Any) -> dict[str, Any]:
    part = {"kind": "linformer", "heads": 4, "rank": RANK, "max_length": 64, **mixer}
    return {"vocab_size": 61, "d_model": 24, "n_layers": 2, "visible": "all", "block.mixer": part}


def test_work_per_token_does_not_grow_with_the_text() -> None:
    model = zoo.build(zoo.load("small", **encoder()))
    counts = []
    for length in (8, 16, 64):
        with zoo.attention_backend("plain"), FlopCounterMode(display=False) as counter:
            model(random_tokens(model.spec, 1, length))
        counts.append(counter.get_total_flops() / length)
        assert counts[-1] == zoo.cost(model.spec, length).flops_per_token_forward
    assert counts[0] == counts[1] == counts[2]


def test_longer_texts_are_refused_and_padding_is_not_text() -> None:
    model = random_model(zoo.load("small", **encoder(max_length=8)))
    assert longest_text(model.spec) == 8
    tokens = random_tokens(model.spec, 2, 10)
    with pytest.raises(ValueError, match=r"linformer reads at most 8 tokens \(max_length\), not 10"):
        model(tokens)
    found = model(tokens, left_pad=torch.tensor([2, 4]))
    torch.testing.assert_close(found[1, 4:], model(tokens[1:, 4:])[0], rtol=1e-4, atol=1e-5)


def test_matrices_start_as_projections_of_the_whole_text() -> None:
    model = zoo.build(zoo.load("small", **encoder(max_length=400, rank=30)))
    roles = zoo.roles(model)
    for name in ("e", "f"):
        weight = model.get_parameter(f"blocks.0.mixer.{name}.weight")
        assert roles[f"blocks.0.mixer.{name}.weight"] == "input"
        assert weight.std().item() == pytest.approx(1 / 20, rel=0.02)


def test_it_serves_as_the_encoder_beside_a_decoder() -> None:
    part = {"kind": "linformer", "heads": 4, "rank": RANK, "max_length": 16}
    spec = zoo.load("small", d_model=24, n_layers=1, vocab_size=61, encoder={"n_layers": 1, "block": {"mixer": part}})
    model, tokens, source = random_model(spec), random_tokens(spec, 1, 5), random_tokens(spec, 1, 9, seed=1)
    before, other = model(tokens, encoder_tokens=source), source.clone()
    other[0, -1] = (other[0, -1] + 1) % 61
    assert (model(tokens, encoder_tokens=other) != before).any(dim=-1).all()


WHOLE = "block.mixer: linformer needs visible: all, since its mixtures"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "causal": ({"visible": "causal"}, WHOLE),
    "prefix": ({"visible": "prefix"}, WHOLE),
    "one layer": ({"visible": "causal", "block.mixer": "attention", "blocks": {"wide": {"mixer": "linformer"}},
                   "pattern": ["block", "wide"]}, "blocks.wide.mixer: linformer needs visible: all"),
    "alibi": ({"block.mixer.position": "alibi"}, "block.mixer.position: alibi cannot add to linformer's scores of"),
    "t5": ({"block.mixer.position": "t5"}, "block.mixer.position: t5 cannot add to linformer's scores of"),
    "window": ({"block.mixer.window": 3}, "block.mixer.window: is causal: it cannot be used"),
    "sparsity": ({"block.mixer.sparsity": "longformer"}, "block.mixer.sparsity: is causal: it cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_its_path(case: str) -> None:
    edits, message = REFUSED[case]
    with pytest.raises(zoo.SpecError, match=message):
        zoo.load("small", **encoder()).edit(edits)
