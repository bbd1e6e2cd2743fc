"""Kinds of cache: bytes, bounds, and what a model says with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from tests.many import few
from zoo.caches import CacheKind, cache_kind
from zoo.caches.quantised import QuantisedCache
from zoo.caching.cache import TokenCache
from zoo.conformance.combinations import held_by, random_model, random_tokens
from zoo.settings.axis import variants

LENGTH = 19
SHAPE = {"d_model": 24, "n_layers": 2, "vocab_size": 40}
MODELS: dict[str, dict[str, Any]] = {
    "attention": {"block.mixer.kv_heads": 2},
    "window": {"block.mixer.window": 5},
    "convolution": {"block.mixer.conv": 3},
    "latent": {"block.mixer": {"kind": "mla", "kv_rank": 9, "nope_dim": 6, "rope_dim": 6}},
    "differential": {"block.mixer": {"kind": "differential", "head_dim": 6}},
    "alibi": {"block.mixer.position": "alibi"},
    "hybrid": {"block.mixer": "gated_deltanet", "blocks.attn.mixer": "attention", "pattern": ["block", "attn"]},
}
KINDS: list[Any] = [
    "plain",
    {"kind": "int8", "group": 4},
    {"kind": "int4", "group": 4},
    {"kind": "sink", "sinks": 2, "recent": 6},
    {"kind": "paged", "page": 4},
]
every_model = pytest.mark.parametrize("edits", MODELS.values(), ids=MODELS)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def spec_of(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{**SHAPE, **edits})


def logits(model: zoo.Decoder, tokens: torch.Tensor, chunks: list[int], kind: Any) -> torch.Tensor:
    cache = model.new_cache(tokens.shape[0], LENGTH, kind=kind)
    with torch.no_grad():
        return torch.cat([model(chunk, cache) for chunk in tokens.split(chunks, dim=1)], dim=1)


@every_model
@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes_declared_are_bytes_allocated(edits: dict[str, Any], kind: Any, dtype: torch.dtype) -> None:
    spec = spec_of(**edits)
    for capacity in (4, 5, 8, LENGTH):
        model = zoo.build(spec)
        cache = model.new_cache(3, capacity, dtype, kind=kind)
        if "paged" in str(kind):  # takes its pages as it reads; then all of the pool is in use
            model(random_tokens(spec, 3, capacity), cache)
        assert cache.nbytes == zoo.cost(spec).cache_bytes(3, capacity, dtype, cache=kind)
        assert cache.nbytes == sum(t.untyped_storage().nbytes() for t in held_by(cache.layers))


@every_model
@every_kind
def test_how_a_text_is_cut_changes_nothing(edits: dict[str, Any], kind: Any) -> None:
    model = random_model(spec_of(**edits)).double()
    tokens = random_tokens(model.spec, 2, LENGTH)
    one_by_one = logits(model, tokens, [1] * LENGTH, kind)
    for chunks in ([LENGTH], [6, 1, 1, 9, 2], [9, 7, 3]):
        torch.testing.assert_close(logits(model, tokens, chunks, kind), one_by_one, rtol=1e-5, atol=1e-5)


@every_model
@every_kind
def test_a_beam_that_moves_takes_its_cache_along(edits: dict[str, Any], kind: Any) -> None:
    model = random_model(spec_of(**edits)).double()
    tokens, rows = random_tokens(model.spec, 3, LENGTH), torch.tensor([2, 0, 0])
    cache, same = (model.new_cache(3, LENGTH, kind=kind) for _ in range(2))
    with torch.no_grad():
        model(tokens[:, :11], cache)
        cache.reorder(rows)
        model(tokens[rows, :11], same)
        after, expected = model(tokens[rows, 11:], cache), model(tokens[rows, 11:], same)
    torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-9)


@every_model
@every_kind
@pytest.mark.parametrize("start", few([7, 0, 12], 1))
def test_what_is_taken_back_was_never_read(edits: dict[str, Any], kind: Any, start: int) -> None:
    model = random_model(spec_of(**edits)).double()
    tokens, other = (random_tokens(model.spec, 2, LENGTH, seed) for seed in (0, 1))
    expected = logits(model, tokens, [LENGTH], kind)
    for kept in (0, 1, 4):
        cache = model.new_cache(2, LENGTH, kind=kind)
        with torch.no_grad():
            if start:
                model(tokens[:, :start], cache)
            undo = cache.mark(4)
            tried = torch.cat((tokens[:, start : start + kept], other[:, kept:4]), dim=1)
            model(tried, cache)
            again = undo(kept)
            if again:
                model(tried[:, :again], cache)
            assert cache.length == start + kept
            after = model(tokens[:, start + kept :], cache)
        torch.testing.assert_close(after, expected[:, start + kept :], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("group", [3, 5, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantised_numbers_are_within_the_declared_bound(kind: str, group: int, dtype: torch.dtype) -> None:
    spec, generator = cache_kind({"kind": kind, "group": group}), torch.Generator().manual_seed(0)
    plain = TokenCache.empty(2, 7, [(3, 11), (1, 4)], torch.zeros(()), dtype)
    cache = spec.store_tokens(plain, None)  # type: ignore[arg-type]
    assert isinstance(cache, QuantisedCache)
    levels, u = 2**cache.bits - 1, torch.finfo(dtype).eps / 2
    new = [10.0 ** torch.arange(-2, 3)[:5].double()[i] * torch.randn(2, h, 7, f, generator=generator) + 3.0 * i
           for i, (h, f) in enumerate([(3, 11), (1, 4)])]  # fmt: skip
    new = [x.double() for x in new]
    read, _ = cache.extend(new, torch.arange(7))
    for x, found in zip(new, read, strict=True):
        for first in range(0, x.shape[-1], group):
            part, got = x[..., first : first + group], found[..., first : first + group]
            low, high = part.amin(-1, keepdim=True), part.amax(-1, keepdim=True)
            bound = (high - low) / levels * (1 + u) / 2 + u * (low.abs() + high - low)
            assert ((got - part).abs() <= bound * (1 + 1e-6) + 1e-12).all()


@pytest.mark.parametrize(("kind", "near"), [("int8", 0.02), ("int4", 0.3)])
def test_a_quantised_cache_says_nearly_the_same(kind: str, near: float) -> None:
    model = random_model(spec_of())
    tokens = random_tokens(model.spec, 2, LENGTH)
    exact, found = model(tokens), logits(model, tokens, [LENGTH], kind)
    assert 0 < (found - exact).abs().max() < near * exact.abs().max()


def test_a_quarter_of_the_bytes() -> None:
    """head_dim 128 in groups of 32: a code a feature, and two numbers of two bytes for each 32."""
    cost = zoo.cost(zoo.load("llama3"))
    plain, eight, four = (cost.cache_bytes(1, 8192, "bfloat16", cache=kind) for kind in ("plain", "int8", "int4"))
    assert eight / plain == (32 + 4) / 64
    assert four / plain == (16 + 4) / 64


@pytest.mark.parametrize("position", ["rope", "nope", "alibi", "t5", "xpos"])
@pytest.mark.parametrize("window", [3, 8])
def test_recent_tokens_without_sinks_are_a_window(position: str, window: int) -> None:
    model = random_model(spec_of(**{"block.mixer.position": position})).double()
    windowed = random_model(model.spec.edit({"block.mixer.window": window})).double()
    tokens = random_tokens(model.spec, 2, LENGTH)
    found = logits(model, tokens, [LENGTH], {"kind": "sink", "sinks": 0, "recent": window})
    torch.testing.assert_close(found, windowed(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "mixer",
    [
        {"position": "rope"},
        {"position": {"kind": "rope", "layout": "interleaved", "fraction": 0.5}},
        {"position": {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4.0, "original_length": 8}}},
        {"position": "alibi"},
        {"position": {"kind": "xpos", "scale_base": 30.0}},
        {"kind": "mla", "kv_rank": 9, "nope_dim": 6, "rope_dim": 6},
    ],
    ids=str,
)
def test_one_layer_sees_sinks_and_recent_tokens_as_one_text(mixer: dict[str, Any]) -> None:
    """Keys of the first layer depend on their token alone: what it sees is a text of the kept tokens, numbered anew."""
    model = random_model(spec_of(n_layers=1, **{"block.mixer": mixer})).double()
    tokens = random_tokens(model.spec, 2, LENGTH)
    found = logits(model, tokens, [LENGTH], {"kind": "sink", "sinks": 2, "recent": 5})
    for t in range(LENGTH):
        seen = tokens[:, : t + 1] if t < 7 else torch.cat((tokens[:, :2], tokens[:, t - 4 : t + 1]), dim=1)
        torch.testing.assert_close(found[:, t], model(seen)[:, -1], rtol=1e-5, atol=1e-5)


def test_a_model_that_forgets_reads_on() -> None:
    for edits in ({"block.mixer.window": 5}, {"block.mixer": "linear_attention"}):
        model = random_model(spec_of(**edits)).double()
        cache, tokens = model.new_cache(2, 5), random_tokens(model.spec, 2, LENGTH)
        assert cache.capacity is None
        found = torch.cat([model(chunk, cache) for chunk in tokens.split([9, 1, 1, 8], dim=1)], dim=1)
        torch.testing.assert_close(found, model(tokens), rtol=1e-5, atol=1e-5)


def test_a_window_beyond_the_capacity_bounds_it() -> None:
    model = random_model(spec_of(**{"block.mixer.window": 9}))
    with pytest.raises(ValueError, match="6 more tokens do not fit: the cache has 0 of at most 5"):
        model(random_tokens(model.spec, 1, 6), model.new_cache(1, 5))


@pytest.mark.parametrize(
    ("edits", "kind", "reason"),
    [
        ({"block.mixer": "mamba2"}, "int8", "cache: int8 needs a layer with a plain KV cache"),
        ({"block.mixer.position": "learned"}, "sink", "sink cannot shift learned positions"),
        ({}, "int3", "cache: .*int3"),
        ({}, {"kind": "int8", "gruop": 4}, "gruop: unknown key .did you mean .group"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_says_why(edits: dict[str, Any], kind: Any, reason: str) -> None:
    spec = spec_of(**edits)
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.build(spec).new_cache(1, 8, kind=kind)
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.cost(spec).cache_bytes(1, 8, cache=kind)


def test_sinks_cannot_be_moved_where_frequencies_change_nor_padded() -> None:
    scaled = {
        "block.mixer.position": {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2.0, "original_length": 8}}
    }
    with pytest.raises(zoo.UnsupportedError, match="cached keys cannot be shifted: the frequencies depend"):
        zoo.build(spec_of(**scaled)).new_cache(1, 2000, kind="sink")
    model = zoo.build(spec_of())
    with pytest.raises(ValueError, match="do not pad prompts"):
        model(random_tokens(model.spec, 1, 3), model.new_cache(1, 2000, kind="sink"), torch.tensor([1]))


def test_every_kind_is_found_by_its_file() -> None:
    assert {"plain", "int8", "int4", "sink", "paged"} <= set(variants("zoo.caches"))
    assert all(issubclass(kind, CacheKind) for kind in variants("zoo.caches").values())
