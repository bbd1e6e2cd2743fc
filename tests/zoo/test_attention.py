"""Attention against a loop over heads, queries and keys in float64, and every backend against every other."""

from __future__ import annotations

import math

import pytest
import torch

import zoo
from zoo.attend import BACKENDS, attend, attention_backend
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.combinations import random_model, random_tokens

DENSE = [name for name in BACKENDS if name not in ("sparse", "varlen")]
"""Those that need neither a pattern nor CUDA; `test_sparsities.py` and `test_flash.py` have the others."""


def loop(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None, pad: list[int]) -> torch.Tensor:
    """The definition, one score at a time. Rows of padding are left at zero."""
    batch, heads, length, dim = q.shape
    out = torch.zeros(batch, heads, length, dim, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            group = h // (heads // k.shape[1])
            for t in range(pad[b], length):
                seen = [s for s in range(pad[b], t + 1) if window is None or t - s < window]
                scores = [float(q[b, h, t].double() @ k[b, group, s].double()) / math.sqrt(dim) for s in seen]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                for weight, s in zip(weights, seen, strict=True):
                    out[b, h, t] += weight / sum(weights) * v[b, group, s].double()
    return out


def random_qkv(heads: int, kv_heads: int, length: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(heads * 100 + length)
    shapes = ((2, heads, length, 6), (2, kv_heads, length, 6), (2, kv_heads, length, 6))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize("backend", DENSE)
@pytest.mark.parametrize("window", [None, 1, 4, 12, 40])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_every_backend_is_the_definition(backend: str, window: int | None, kv_heads: int) -> None:
    if backend == "band" and window is None:
        pytest.skip("the band backend is for windows; that it refuses is tested below")
    q, k, v = random_qkv(4, kv_heads, 13)
    index = torch.arange(13)
    with attention_backend(backend):
        out = attend(q, k, v, Visible(index, index, window), Scoring(6**-0.5))
    torch.testing.assert_close(out.double(), loop(q, k, v, window, [0, 0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["plain", "fused"])
@pytest.mark.parametrize("window", [None, 4])
def test_padding_is_not_seen(backend: str, window: int | None) -> None:
    q, k, v = random_qkv(4, 2, 9)
    index = torch.arange(9)
    with attention_backend(backend):
        out = attend(q, k, v, Visible(index, index, window, torch.tensor([0, 5])), Scoring(6**-0.5))
    expected = loop(q, k, v, window, [0, 5])
    torch.testing.assert_close(out[0].double(), expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[1, :, 5:].double(), expected[1, :, 5:], rtol=1e-4, atol=1e-5)
    assert out.isfinite().all()


@pytest.mark.parametrize("backend", DENSE)
def test_backends_agree_on_gradients(backend: str) -> None:
    index = torch.arange(13)
    grads = []
    for name in ("plain", backend):
        leaves = [x.requires_grad_() for x in random_qkv(4, 2, 13)]
        with attention_backend(name):
            attend(*leaves, Visible(index, index, 4), Scoring(6**-0.5)).square().sum().backward()
        grads.append([x.grad for x in leaves])
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_a_backend_that_cannot_says_so() -> None:
    q, k, v = random_qkv(4, 4, 9)
    index = torch.arange(9)
    with attention_backend("band"), pytest.raises(ValueError, match="band backend needs a window"):
        attend(q, k, v, Visible(index, index), Scoring(1.0))
    with attention_backend("sparse"), pytest.raises(ValueError, match="sparse backend needs a pattern"):
        attend(q, k, v, Visible(index, index), Scoring(1.0))
    with pytest.raises(ValueError, match="unknown attention backend 'flsh'"), attention_backend("flsh"):
        pass


def test_a_window_counts_the_token_itself() -> None:
    """W = 1 sees nothing but itself: changing any other token changes nothing."""
    spec = zoo.load("small", d_model=16, n_layers=2, **{"block.mixer.window": 1})
    with pytest.warns(zoo.SpecWarning):
        model, tokens = random_model(spec), random_tokens(spec, 1, 8)
    other = tokens.clone()
    other[0, :7] = (other[0, :7] + 1) % spec.vocab_size
    torch.testing.assert_close(model(other)[:, 7], model(tokens)[:, 7], rtol=0, atol=0)


def test_windows_reach_w_minus_1_back_per_layer() -> None:
    spec = zoo.load("small", d_model=16, n_layers=1, **{"block.mixer.window": 4})
    model, tokens = random_model(spec), random_tokens(spec, 1, 12)
    reached = []
    for changed in range(12):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % spec.vocab_size
        if not torch.equal(model(other)[:, 11], model(tokens)[:, 11]):
            reached.append(changed)
    assert reached == [8, 9, 10, 11]


def test_gqa_with_copied_heads_is_mha() -> None:
    """Grouped heads are multi-head attention whose heads within a group share keys and values."""
    gqa = zoo.load("small", d_model=16, n_layers=2, **{"block.mixer.kv_heads": 2})
    model = random_model(gqa)
    full = random_model(gqa.edit({"block.mixer.kv_heads": 4}))
    weights = dict(model.state_dict())
    for name, value in weights.items():
        if name.endswith((".k.weight", ".v.weight")):
            weights[name] = value.unflatten(0, (2, 4)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(weights)
    tokens = random_tokens(gqa, 2, 9)
    torch.testing.assert_close(full(tokens), model(tokens), rtol=1e-5, atol=1e-5)


def test_a_full_cache_refuses_more() -> None:
    spec = zoo.load("small", d_model=16, n_layers=1)
    model, cache = zoo.build(spec), zoo.build(spec).new_cache(batch=1, capacity=4)
    model(random_tokens(spec, 1, 3), cache)
    with pytest.raises(ValueError, match="2 more tokens do not fit: the cache has 3 of at most 4"):
        model(random_tokens(spec, 1, 2), cache)
    with pytest.raises(ValueError, match="first chunk only"):
        model(random_tokens(spec, 1, 1), cache, left_pad=torch.tensor([0]))


def test_a_rolling_buffer_holds_exactly_its_window() -> None:
    """Mistral: 8× less memory at 32k tokens with a window of 4096."""
    spec = zoo.load("llama3", d_model=64, n_layers=2, **{"block.mixer.heads": 4, "block.mixer.kv_heads": 2})
    full = zoo.cost(spec).cache_bytes(1, 32768, "bfloat16")
    rolling = zoo.cost(spec.edit({"block.mixer.window": 4096})).cache_bytes(1, 32768, "bfloat16")
    assert full == 8 * rolling == 2 * 2 * 2 * 16 * 32768 * 2


def test_reordering_a_cache_reorders_what_it_decodes() -> None:
    spec = zoo.load("small", d_model=16, n_layers=2, **{"block.mixer.window": 4})
    model, tokens = random_model(spec), random_tokens(spec, 3, 7)
    rows = torch.tensor([2, 2, 0])
    cache = model.new_cache(batch=3, capacity=10)
    model(tokens[:, :6], cache)
    cache.reorder(rows)
    out = model(tokens[rows][:, 6:], cache)
    torch.testing.assert_close(out, model(tokens)[rows][:, 6:], rtol=1e-4, atol=1e-5)
