"""A model that starts from another: pooled heads against attention written out."""

from __future__ import annotations

import pytest
import torch

import zoo
from zoo.conversion import Pooling
from zoo.errors import SpecError

EDITS = {"d_model": 24, "n_layers": 2, "vocab_size": 37, "block.mixer.heads": 4, "block.mixer.bias": True}
TOKENS = torch.arange(14).reshape(2, 7) % 37


def model(kv_heads: int, seed: int = 0) -> zoo.Decoder:
    """With biases that are not zero."""
    built = zoo.build(zoo.load("small", **EDITS, **{"block.mixer.kv_heads": kv_heads}), seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    return built.eval()


def converted(source: zoo.Decoder, kv_heads: int, pooling: Pooling = "mean", seed: int = 0) -> zoo.Decoder:
    return zoo.convert(source, source.spec.edit({"block.mixer.kv_heads": kv_heads}), pooling, seed).eval()


def heads(weight: torch.Tensor, count: int) -> list[torch.Tensor]:
    return list(weight.chunk(count))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_kv_head_is_the_mean_of_those_it_replaces(kv_heads: int) -> None:
    source = model(4)
    found = converted(source, kv_heads)
    group = 4 // kv_heads
    for name in ("k.weight", "v.weight", "k.bias", "v.bias"):
        theirs = heads(source.state_dict()[f"blocks.0.mixer.{name}"], 4)
        ours = heads(found.state_dict()[f"blocks.0.mixer.{name}"], kv_heads)
        for number, head in enumerate(ours):
            mean = sum(theirs[number * group : (number + 1) * group]) / group
            torch.testing.assert_close(head, mean)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_pooling_heads_that_are_alike_changes_no_logit(pooling: Pooling) -> None:
    """Multi-head attention whose heads repeat is grouped-query attention."""
    grouped = model(2)
    state = grouped.state_dict()
    for name, value in state.items():
        if name.split(".")[-2] in ("k", "v"):
            state[name] = torch.cat([half for head in heads(value, 2) for half in (head, head)])
    full = zoo.build(grouped.spec.edit({"block.mixer.kv_heads": 4})).eval()
    full.load_state_dict(state)
    torch.testing.assert_close(converted(full, 2, pooling)(TOKENS), grouped(TOKENS))


def test_as_many_heads_is_the_same_model() -> None:
    source = model(4)
    assert torch.equal(converted(source, 4)(TOKENS), source(TOKENS))


def test_random_draws_keys_and_values_anew_and_keeps_the_rest() -> None:
    source, found = model(4), converted(model(4), 2, "random", seed=3)
    fresh = zoo.build(found.spec, seed=3).state_dict()
    for name, value in found.state_dict().items():
        drawn = name.split(".")[-2] in ("k", "v")
        assert torch.equal(value, fresh[name] if drawn else source.state_dict()[name]), name


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"d_model": 16}, r"\(37, 24\), which cannot become \(37, 16\)"),
        ({"n_layers": 3}, "to 3 blocks needs growth: stack or duplicate$"),
        (
            {"block.mixer.heads": 2, "block.mixer.kv_heads": 2, "block.mixer.head_dim": 6},
            "only key and value heads",
        ),
        ({"block.ffn.d_ff": 8}, "only key and value heads can be pooled"),
        (
            {"block.ffn": {"kind": "topk_moe", "experts": 2, "top_k": 1, "d_ff": 8}},
            r"an expert must be as wide as the layer that it copies, d_ff: 64$",
        ),
    ],
)
def test_what_cannot_be_converted_is_named(edits: dict[str, object], message: str) -> None:
    source = model(4)
    with pytest.raises(SpecError, match=message):
        zoo.convert(source, source.spec.edit(edits))
