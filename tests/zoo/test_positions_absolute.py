"""Sinusoidal and learned positions against their formulas and transformers, padded and cached; xPos against its own."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.positions.learned import Learned
from zoo.positions.rope import RoPE
from zoo.positions.sinusoidal import Sinusoidal
from zoo.positions.xpos import XPos
from zoo.site import ForwardPass


def table(spec: Sinusoidal, dim: int, start: int, end: int) -> torch.Tensor:
    module = spec.build_shared(dim, 0)
    assert module is not None
    out: torch.Tensor = module(ForwardPass.of(torch.zeros(1, end - start), start))
    return out


@pytest.mark.parametrize("dim", [1, 2, 7, 16])
def test_interleaved_sinusoids_are_the_papers(dim: int) -> None:
    for place, row in enumerate(table(Sinusoidal(base=300.0), dim, 5, 12).tolist(), start=5):
        for feature, value in enumerate(row):
            angle = place / 300.0 ** (2 * (feature // 2) / dim)
            assert value == pytest.approx(math.cos(angle) if feature % 2 else math.sin(angle), abs=1e-5)


@pytest.mark.parametrize("dim", [2, 4, 7, 16])
def test_concatenated_sinusoids_are_tensor2tensors(dim: int) -> None:
    half = dim // 2
    for place, row in enumerate(table(Sinusoidal(layout="concatenated"), dim, 5, 12).tolist(), start=5):
        for i in range(half):
            angle = place * math.exp(-math.log(1e4) / max(half - 1, 1) * i)
            assert row[i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert row[half + i] == pytest.approx(math.cos(angle), abs=1e-5)
        assert row[2 * half :] == [0.0] * (dim % 2)


@pytest.mark.parametrize("dim", [6, 9])
def test_concatenated_sinusoids_are_transformers(dim: int) -> None:
    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(20, dim)
    torch.testing.assert_close(table(Sinusoidal(layout="concatenated"), dim, 0, 20), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_absolute_positions_are_added_once_to_the_embedded_tokens(position: str) -> None:
    """Whatever the layers: also where blocks differ in heads, and where only some of the layers ask for it."""
    edits = {"blocks": {"wide": {"mixer.heads": 2}, "none": {"mixer.position": "nope"}}}
    spec = zoo.load("small", pattern=["none", "block", "wide"], **edits, **{"block.mixer.position": position})
    model, tokens = random_model(spec), random_tokens(spec, 2, 9)
    assert list(model.positions) == ["1"]
    step = model.step(tokens, 4, None, {})
    expected = model.embedding(tokens) * math.sqrt(spec.d_model) + model.positions["1"](ForwardPass.of(tokens, 4))
    torch.testing.assert_close(model.embed(tokens, step), expected)


def test_learned_positions_are_opts() -> None:
    theirs = OPTLearnedPositionalEmbedding(11, 6)
    ours = Learned(length=11, offset=2).build_shared(6, 0)
    assert ours is not None
    ours.load_state_dict({"table.weight": theirs.weight.detach()})
    pads = torch.tensor([0, 4])
    mask = (torch.arange(11) >= pads[:, None]).long()
    actual, expected = ours(ForwardPass.of(torch.zeros(2, 11), 0, pads)), theirs(mask)
    for row, pad in enumerate(pads.tolist()):
        torch.testing.assert_close(actual[row, pad:], expected[row, pad:], rtol=0, atol=0)
    assert actual.isfinite().all()
    later = theirs(mask, past_key_values_length=7)
    torch.testing.assert_close(ours(ForwardPass.of(torch.zeros(2, 4), 7, pads)), later, rtol=0, atol=0)


def test_a_text_longer_than_the_learned_table_is_refused() -> None:
    spec = zoo.load("small", **{"block.mixer.position": {"kind": "learned", "length": 8, "offset": 2}})
    model, tokens = zoo.build(spec), random_tokens(spec, 2, 9)
    with pytest.raises(ValueError, match="a text of 9 tokens is longer than the 8 learned positions"):
        model(tokens)
    cache = model.new_cache(2, 20)
    model(tokens[:, :7], cache)
    model(tokens[:, 7:8], cache)
    with pytest.raises(ValueError, match="a text of 9 tokens"):
        model(tokens[:, 8:], cache)
    model(tokens, left_pad=torch.tensor([1, 3]))  # eight tokens and padding
    with pytest.raises(ValueError, match="a text of 9 tokens"):
        model(tokens, left_pad=torch.tensor([1, 0]))


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_a_bfloat16_model_stays_bfloat16(position: str) -> None:
    model = zoo.build(zoo.load("small", n_layers=1, **{"block.mixer.position": position})).bfloat16()
    assert model(torch.zeros(1, 5, dtype=torch.long)).dtype == torch.bfloat16


def xpos_scores(spec: XPos, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(T, T): scores of one query and one key put at every place."""
    length = 60
    layer, step = spec.build(len(q), 1), ForwardPass.of(torch.zeros(1, length))
    q, k = (x.expand(1, 1, length, -1) for x in (q, k))
    return (layer.rotate_queries(q, step) @ layer.rotate_keys(k, step).transpose(-1, -2))[0, 0]


def vectors(dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    q, k = torch.randn(2, dim, generator=torch.Generator().manual_seed(3)).unbind(0)
    return q, k


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_xpos_is_its_formula(layout: str) -> None:
    """score = Re Σ_i q_i conj(k_i) e^{iθ_i(n − m)} ζ_i^{(n − m)/S}, pairs as complex numbers."""
    dim, base, scale_base, gamma = 8, 200.0, 25.0, 0.7
    q, k = vectors(dim)
    actual = xpos_scores(XPos(base=base, layout=layout, scale_base=scale_base, gamma=gamma), q, k)
    for n, m in ((0, 0), (13, 4), (59, 0), (41, 40), (7, 30)):
        expected = 0.0
        for i in range(dim // 2):
            a, b = (i, i + dim // 2) if layout == "half" else (2 * i, 2 * i + 1)
            query, key = complex(q[a], q[b]), complex(k[a], k[b])
            turn = complex(0, (n - m) * base ** (-2 * i / dim))
            zeta = (i / (dim / 2) + gamma) / (1 + gamma)
            expected += (query * key.conjugate() * math.e**turn).real * zeta ** ((n - m) / scale_base)
        assert actual[n, m].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_xpos_scores_depend_on_distance_alone_and_fade() -> None:
    q, k = vectors(16)
    scores = xpos_scores(XPos(scale_base=20.0), q, k)
    for distance in (0, 3, 31):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-3, atol=1e-4)
    same = xpos_scores(XPos(scale_base=20.0), q, q)
    rope = RoPE().build(16, 1)
    step = ForwardPass.of(torch.zeros(1, 60))
    plain = (rope.rotate_queries(q.expand(1, 1, 60, 16), step) @ rope.rotate_keys(q.expand(1, 1, 60, 16), step).mT)[
        0, 0
    ]
    assert same[0, 0].item() == pytest.approx(plain[0, 0].item(), rel=1e-5)
    assert same[59, 0].abs() < plain[59, 0].abs()
