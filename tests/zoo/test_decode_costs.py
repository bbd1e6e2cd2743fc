"""FLOPs of one decoded token and of a prefill, as declared and as torch counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import zoo
from tests.many import few
from zoo.conformance.counting import counted
from zoo.costs_decoding import decode_cost, prefill_cost
from zoo.mixers._linear import Stateful
from zoo.settings.axis import variants
from zoo.spec import longest_text

CACHED = 13
SHAPE = {"d_model": 24, "n_layers": 3, "vocab_size": 40}


def mixers() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, cls in variants("zoo.mixers").items():
        if cls.requires.get("visible") == "all":  # type: ignore[attr-defined]
            continue  # it does not decode
        for number, example in enumerate(cls.examples):  # type: ignore[attr-defined]
            windows = ({}, {"window": 5}) if "window" in cls.model_fields else ({},)
            for window in windows:
                edits = {**example, **window, "kind": kind}
                yield f"{kind}{number}-{window.get('window')}", {"block.mixer": edits}
    for kind, cls in variants("zoo.sparsities").items():
        for number, example in enumerate(cls.examples):  # type: ignore[attr-defined]
            yield f"{kind}{number}", {"block.mixer.sparsity": {"kind": kind, **example}}


SPECS = dict(mixers()) | {
    "kv heads": {"block.mixer.kv_heads": 2},
    "experts": {"block.ffn": {"kind": "topk_moe", "d_ff": 20, "experts": 5}},
    "shared experts": {"block.ffn": {"kind": "deepseek_moe", "d_ff": 12}},
    "hyper": {"block.norm_placement": "hyper_connections"},
    "depth": {"block.norm_placement": {"kind": "attention_residuals", "blocks": 2}},
    "distances": {"block.mixer.position": "transformer_xl"},
    "distances in a window": {"block.mixer": {"kind": "attention", "position": "transformer_xl", "window": 5}},
    "untied": {"tie_embeddings": False, "embedding_dim": 8},
    "hybrid": {"blocks.attn.mixer": "attention", "block.mixer": "mamba2", "pattern": ["block", "attn"]},
    "expanded latent": {"block.mixer": {"kind": "mla", "kv_rank": 90, "nope_dim": 1, "rope_dim": 6}},
    "latent with norms": {"block.mixer": {"kind": "mla", "kv_rank": 10, "rope_dim": 6, "qk_norm": "rmsnorm"}},
    "expanded latent with norms": {
        "block.mixer": {"kind": "mla", "kv_rank": 90, "nope_dim": 1, "rope_dim": 6, "qk_norm": "rmsnorm"}
    },
}
every_spec = pytest.mark.parametrize("edits", SPECS.values(), ids=SPECS)


def recurs(spec: zoo.ModelSpec) -> bool:
    return any(isinstance(mixer, Stateful) for layer in spec.layers for mixer in layer.mixer.components)


def built(edits: dict[str, Any]) -> zoo.Decoder:
    return zoo.build(zoo.load("small", **SHAPE, **edits)).eval()


@every_spec
@pytest.mark.parametrize("batch", few([3, 1], 1))
def test_a_decoded_token_takes_the_declared_flops(edits: dict[str, Any], batch: int) -> None:
    """A single query sees no masked key, so that counting whole score matrices is exact."""
    model = built(edits)
    cache = model.new_cache(batch, CACHED + 1)
    with torch.no_grad(), zoo.attention_backend("plain"):
        model(torch.zeros(batch, CACHED, dtype=torch.long), cache)
        with counted(model) as count:
            model(torch.zeros(batch, 1, dtype=torch.long), cache)
    assert count.total == pytest.approx(decode_cost(model.spec, batch, CACHED + 1).flops, rel=1e-9)


RECURRENT = {name for name, edits in SPECS.items() if recurs(zoo.load("small", **SHAPE, **edits))}


@pytest.mark.parametrize("name", sorted(SPECS.keys() - RECURRENT))
def test_a_prefill_takes_the_declared_flops(name: str) -> None:
    """But for the upper halves of the score matrices, which the plain backend computes."""
    model = built(SPECS[name])
    cache = model.new_cache(2, CACHED)
    with torch.no_grad(), zoo.attention_backend("plain"), counted(model) as count:
        model.read_out(model.hidden(torch.zeros(2, CACHED, dtype=torch.long), cache)[:, -1:])
    cost, work = zoo.cost(model.spec, CACHED), prefill_cost(model.spec, 2, CACHED)
    masked = 2 * CACHED * (cost.flops_per_token_square - cost.flops_per_token) / 3
    assert count.total == pytest.approx(work.flops + masked, rel=1e-9)


@pytest.mark.parametrize("name", sorted(RECURRENT))
def test_a_prefill_of_a_recurrent_model_is_declared_as_reading_token_by_token(name: str) -> None:
    """However it is computed; all but the first token, which finds no state before it."""
    model = built(SPECS[name])
    cache, token = model.new_cache(2, CACHED), torch.zeros(2, 1, dtype=torch.long)
    with torch.no_grad(), zoo.attention_backend("plain"):
        model.hidden(token, cache)
        with counted(model) as count:
            for _ in range(CACHED - 1):
                model.hidden(token, cache)
    whole, first = (prefill_cost(model.spec, 2, length).flops for length in (CACHED, 1))
    assert count.total == pytest.approx(whole - first, rel=1e-9)


@every_spec
def test_a_prefill_fills_the_declared_cache(edits: dict[str, Any]) -> None:
    model = built(edits)
    cache = model.new_cache(2, CACHED)
    assert prefill_cost(model.spec, 2, CACHED).cache_elements * 4 == cache.nbytes


def test_the_first_token_is_decoded_as_it_is_read() -> None:
    for edits in SPECS.values():
        spec = zoo.load("small", **SHAPE, **edits)
        assert decode_cost(spec, 1, 1).flops == pytest.approx(prefill_cost(spec, 1, 1).flops, rel=1e-12)


def test_the_longest_text_is_the_shortest_table() -> None:
    assert longest_text(zoo.load("gpt2")) == 1024
    assert longest_text(zoo.load("llama3")) is None
