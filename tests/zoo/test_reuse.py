"""Layers that attend to keys and values of a layer below, against layers that are given them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.costs_decoding import decode_cost

BLOCKS = {
    "reader": {"mixer.reuse_kv": True},
    "local": {"mixer.window": 3},
    "local_reader": {"mixer.window": 3, "mixer.reuse_kv": True},
}
PATTERNS = [
    (["block", "reader", "block", "reader"], [0, 0, 2, 2]),  # cross-layer attention
    (["local", "block", "reader", "reader"], [0, 1, 1, 1]),  # YOCO
    (["block", "local", "reader", "local_reader"], [0, 1, 0, 1]),  # Gemma 3n
]


def small(pattern: list[str], **edits: Any) -> zoo.ModelSpec:
    base = {"d_model": 24, "n_layers": 4, "block.mixer": {"heads": 4, "kv_heads": 2, "qk_norm": "rmsnorm"}}
    return zoo.load("small", **base, blocks=BLOCKS, pattern=pattern, **edits)


@pytest.mark.parametrize(("pattern", "lenders"), PATTERNS, ids=["cla", "yoco", "gemma3n"])
def test_a_layer_attends_to_what_the_nearest_layer_like_it_projected(pattern: list[str], lenders: list[int]) -> None:
    """The plain model projects keys and values in every layer; hooks put those of the lender in their place."""
    spec = small(pattern)
    model, tokens = random_model(spec), random_tokens(spec, 2, 9)
    plain = random_model(spec.edit({f"blocks.{name}.mixer.reuse_kv": False for name in ("reader", "local_reader")}))
    plain.load_state_dict(model.state_dict(), strict=False)
    projected: dict[tuple[int, str], torch.Tensor] = {}
    for layer, lender in enumerate(lenders):
        for name in ("k_norm", "v"):
            place = (layer, name) if layer == lender else (lender, name)

            def swap(module: Any, args: Any, out: torch.Tensor, place: Any = place, own: Any = (layer, name)) -> Any:
                return projected.setdefault(own, out) if place == own else projected[place]

            getattr(plain.blocks[layer].mixer, name).register_forward_hook(swap)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), plain(tokens))


def test_what_is_borrowed_has_no_parameters_and_no_cache() -> None:
    spec = small(["block", "reader"])
    model, own = zoo.build(spec), zoo.build(spec.edit({"pattern": ["block"]}))
    ours, theirs = zoo.cost(spec), zoo.cost(own.spec)
    assert theirs.params - ours.params == 2 * (2 * 24 * 12 + 6) == _count(own) - _count(model)
    assert 2 * ours.cache_bytes(1, 30) == theirs.cache_bytes(1, 30) == own.new_cache(1, 30).nbytes
    assert model.new_cache(1, 30).nbytes == ours.cache_bytes(1, 30)
    assert not hasattr(model.blocks[1].mixer, "k")


def _count(model: zoo.Decoder) -> int:
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def test_a_decoded_token_takes_the_declared_flops_and_reads_what_is_borrowed() -> None:
    spec = small(["block", "local", "reader", "local_reader"])
    model, tokens = zoo.build(spec).eval(), random_tokens(spec, 2, 9)
    cache = model.new_cache(2, 9)
    model(tokens[:, :8], cache=cache)
    with counted(model) as count, zoo.attention_backend("plain"):
        model(tokens[:, 8:], cache=cache)
    declared = decode_cost(spec, 2, 9)
    assert count.total == declared.flops
    assert declared.cache_elements == 2 * 2 * (2 * 12) * (9 + 3)


@pytest.mark.parametrize("kind", ["int8", {"kind": "paged", "page": 4}, {"kind": "sink", "sinks": 2, "recent": 30}])
def test_other_kinds_of_cache_store_what_is_lent(kind: Any) -> None:
    spec = small(["block", "local", "reader", "local_reader"])
    model, tokens = random_model(spec).double(), random_tokens(spec, 2, 9)
    with torch.no_grad():
        cache = model.new_cache(2, 12, kind=kind)
        found = torch.cat([model(tokens[:, i : i + 3], cache=cache) for i in (0, 3, 6)], dim=1)
        worst = (found - model(tokens)).abs().max() / model(tokens).abs().max()
    assert worst < (0.05 if kind == "int8" else 1e-6)


def test_recomputed_blocks_borrow_too() -> None:
    spec = small(["block", "reader"])
    model, tokens, gradients = random_model(spec).train(), random_tokens(spec, 2, 8), []
    for model.recompute in (False, True):
        model.zero_grad()
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


REFUSED = [
    (["reader", "block"], {}, r"blocks\.reader\.mixer\.reuse_kv: no lower layer has its own"),
    (["local", "reader"], {}, r"blocks\.reader\.mixer\.reuse_kv: no lower layer has its own"),
    (["block", "reader"], {"blocks.reader.mixer.conv": 3}, r"blocks\.reader\.mixer\.conv: with reuse_kv, keys"),
    (["block", "reader"], {"block.mixer.bias": True}, r"blocks\.reader\.mixer\.bias: with reuse_kv, keys"),
    (["block", "reader"], {"mtp": {}}, "mtp: needs a last layer without reuse_kv"),
    (["block", "reader"], {"value_embeddings": {}}, "layer 3 has no value heads to add to"),
]


@pytest.mark.parametrize(("pattern", "edits", "reason"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_what_cannot_be_borrowed_is_refused(pattern: list[str], edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(pattern, **edits)
