"""GAU and FLASH against the paper's formulas, one pair of tokens at a time in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from tests.zoo.slow import layer_of, random_stream, run
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers import Mixer
from zoo.mixers.flash import FLASH
from zoo.mixers.gau import GAU
from zoo.positions.alibi import ALiBi
from zoo.positions.nope import NoPE
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass

D, T = 12, 21
X = random_stream(T, D)


def rotated(x: Tensor, base: float = 10_000.0) -> Tensor:
    """RoPE by complex numbers, halves as real and imaginary parts. x: (T, s)."""
    half = x.shape[-1] // 2
    angles = torch.arange(len(x), dtype=torch.float64)[:, None] * base ** (-torch.arange(half) / half)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1)


def readings(layer: Any, x: Tensor) -> list[Tensor]:
    """γ ⊙ Z + β, for each pair of them. x: (T, D)."""
    z = F.silu(x @ layer.z.weight.detach().T)
    return [z * scale + offset for scale, offset in zip(layer.scale.detach(), layer.offset.detach(), strict=True)]


def values(layer: Any, x: Tensor) -> Tensor:
    return F.silu(x @ layer.v.weight.detach().T)


def written(layer: Any, x: Tensor, read: Tensor) -> Tensor:
    return (F.silu(x @ layer.u.weight.detach().T) * read) @ layer.o.weight.detach().T


def close(actual: Tensor, expected: Tensor) -> None:
    """Assert equality to the precision of float32, in which squares are taken."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6 * expected.abs().max().item())


@pytest.mark.parametrize("position", ["rope", "nope", "alibi"])
def test_gau_is_its_formula(position: str) -> None:
    scheme = {"rope": RoPE(), "nope": NoPE(), "alibi": ALiBi()}[position]
    layer: Any = layer_of(GAU(head_dim=6, v_dim=10, length=3, position=scheme), D)
    q, k = readings(layer, X[0])
    if position == "rope":
        q, k = rotated(q), rotated(k)
    v, read = values(layer, X[0]), torch.zeros(T, 10, dtype=torch.float64)
    for i in range(T):
        for j in range(i + 1):
            bias = -(2.0**-8) * (i - j) if position == "alibi" else 0.0
            read[i] += max(0.0, float(q[i] @ k[j]) / 3 + bias) ** 2 * v[j]
    close(run(layer, X), written(layer, X[0], read))


def mixed_chunks(layer: Any, x: Tensor, chunk: int) -> Tensor:
    """The paper's two sums, by pairs of tokens. x: (T, D)."""
    q, k, q_before, k_before = readings(layer, x)
    v, read = values(layer, x), torch.zeros(len(x), layer.v.weight.shape[0], dtype=torch.float64)
    for i in range(len(x)):
        begin = i // chunk * chunk
        for j in range(begin, i + 1):
            read[i] += max(0.0, float(q[i] @ k[j]) / chunk) ** 2 * v[j]
        for j in range(begin):
            read[i] += float(q_before[i] @ k_before[j]) / begin * v[j]
    return written(layer, x, read)


@pytest.mark.parametrize("chunk", [1, 4, 5, 7, 21, 64])
def test_flash_is_its_formula(chunk: int) -> None:
    layer = layer_of(FLASH(head_dim=6, v_dim=10, chunk=chunk, position=NoPE()), D)
    close(run(layer, X), mixed_chunks(layer, X[0], chunk))


def test_flash_turns_its_queries_and_keys() -> None:
    layer: Any = layer_of(FLASH(head_dim=6, v_dim=10, chunk=5), D)
    plain: Any = layer_of(FLASH(head_dim=6, v_dim=10, chunk=5, position=NoPE()), D)
    step = ForwardPass.of(torch.zeros(1, T))
    for ours, unturned in zip(layer.queries_and_keys(X, step), readings(plain, X[0]), strict=True):
        close(ours[0, 0], rotated(unturned).detach())


@pytest.mark.parametrize("spec", [GAU(head_dim=6, length=4), FLASH(head_dim=6, chunk=4), FLASH(head_dim=6, chunk=7)])
@pytest.mark.parametrize("parts", [[1] * T, [5, 1, 9, 6], [17, 4], [3, 3, 2, 1, 1, 11]], ids=str)
def test_the_decoding_form_is_the_parallel_one(spec: Mixer, parts: list[int]) -> None:
    """Both forms agree to 1e-4 in float32."""
    layer, x = layer_of(spec, D).float(), X.float()
    cache, start, found = layer.new_cache(1, T, torch.float32), 0, []
    with torch.no_grad():
        for piece in x.split(parts, dim=1):
            found.append(layer(piece, ForwardPass.of(piece, start), cache))
            start += piece.shape[1]
        expected = layer(x, ForwardPass.of(x))
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("parts", [[T], [2, 3, 16], [1] * T, [4, 1, 1, 10, 5]], ids=str)
def test_chunks_begin_where_a_padded_row_does(parts: list[int]) -> None:
    """Also where the padding is longer than the first part of a prompt that is read in parts."""
    layer, pads = layer_of(FLASH(head_dim=6, chunk=4), D), torch.tensor([0, 3, 9])
    x = torch.cat((X, 2 * X, -X))
    cache, start, found = layer.new_cache(3, T, torch.float64), 0, []
    with torch.no_grad():
        for piece in x.split(parts, dim=1):
            found.append(layer(piece, ForwardPass.of(piece, start, pads), cache))
            start += piece.shape[1]
        together = layer(x, ForwardPass.of(x, 0, pads))
        for row, pad in enumerate(pads.tolist()):
            alone = layer(x[row : row + 1, pad:], ForwardPass.of(x[:1, pad:]))[0]
            close(torch.cat(found, 1)[row, pad:], alone)
            close(together[row, pad:], alone)


def test_what_flash_keeps_does_not_grow_with_the_text() -> None:
    spec = FLASH(head_dim=6, v_dim=10, chunk=4).resolve(D)
    assert spec.cache_elements(1) == spec.cache_elements(1_000_000) == 4 * (6 + 10) + 2 * 6 * 10


def test_flash_takes_linear_work_and_gau_quadratic() -> None:
    """Twice the text, the same work per token, but for the first chunk, which has nothing before it."""
    flash, gau = FLASH(head_dim=128, v_dim=1024).resolve(512), GAU(head_dim=128, v_dim=1024).resolve(512)
    scores = [flash.cost(512, length).flops - 2 * flash.matrices(512) for length in (8192, 16384)]
    assert scores[1] == pytest.approx(scores[0], rel=0.05)
    scores = [gau.cost(512, length).flops - 2 * gau.matrices(512) for length in (8192, 16384)]
    assert scores[1] == pytest.approx(2 * scores[0], rel=0.01)


def test_two_gated_units_are_about_as_large_as_a_transformer_layer() -> None:
    """§2.2: with e = 2 d, 6 d² + d s weights, of which two stand for the 12 d² of attention and an FFN of 4 d."""
    edits = {"d_model": 1024, "block.ffn": "none", "tie_embeddings": True}
    unit = zoo.cost(zoo.load("small", n_layers=2, **edits, **{"block.mixer": "gau"})).params
    layer = zoo.cost(
        zoo.load("small", n_layers=1, d_model=1024, **{"block.ffn": {"kind": "gelu", "d_ff": "4x"}})
    ).params
    assert unit - layer == 2 * (1024 * 128 + 4 * 128)


@pytest.mark.parametrize("kind", ["gau", "flash"])
def test_caches_are_reordered_with_their_rows(kind: str) -> None:
    spec = zoo.load("small", **{"block.mixer": {"kind": kind, "head_dim": 16}, "block.ffn": "none"})
    model, tokens = random_model(spec), random_tokens(spec, 2, 11)
    rows, cache = torch.tensor([1, 1]), model.new_cache(2, 11)
    with torch.no_grad():
        model(tokens[:, :9], cache)
        cache.reorder(rows)
        after = model(tokens[:, 9:], cache)
        expected = model(torch.cat((tokens[rows, :9], tokens[:, 9:]), dim=1))[:, 9:]
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-4)


def test_a_gated_unit_needs_a_norm() -> None:
    """Twice the input at the powers of U, V and the squared product of Q and K gives 2⁶ times the output, or nearly."""
    layer: Any = layer_of(GAU(head_dim=6, position=NoPE()), D)
    with torch.no_grad():
        layer.offset.zero_()
    near, far = (run(layer, scale * X).abs().sum().item() for scale in (1e4, 2e4))
    assert far / near == pytest.approx(2**6, rel=0.01)
    with pytest.raises(
        zoo.SpecError, match=r"block\.norm: the output of gau grows with power 6 of its input: it needs a norm"
    ):
        zoo.load("small", **{"block.mixer": "gau", "block.norm": "none"})


def test_flash_says_what_it_lacks() -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.mixer\.position: alibi adds to attention scores, which flash"):
        zoo.load("small", **{"block.mixer": {"kind": "flash", "position": "alibi"}})
