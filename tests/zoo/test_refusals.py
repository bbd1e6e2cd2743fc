"""One clear error for each misuse of a model, its cache and its files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import zoo

SHAPE = {"d_model": 16, "n_layers": 1, "vocab_size": 11, "block.mixer.heads": 2}
TOKENS = torch.arange(8).view(2, 4)


def model_of(**edits: Any) -> zoo.Decoder:
    return zoo.build(zoo.load("small", **SHAPE, **edits)).eval()


def of_rows(*counts: int) -> torch.Tensor:
    return torch.tensor(counts)


MISUSES: dict[str, tuple[dict[str, Any], Callable[[zoo.Decoder], object], str]] = {
    "no tokens": (
        {},
        lambda m: m(TOKENS[:, :0]),
        "tokens of shape (2, 0): a pass needs at least one row and one token",
    ),
    "no rows": ({}, lambda m: m(TOKENS[:0]), "tokens of shape (0, 4): a pass needs"),
    "no tokens in a cache": ({}, lambda m: m(TOKENS[:, :0], m.new_cache(2, 4)), "tokens of shape (2, 0): a pass needs"),
    "no tokens to learn from": ({}, lambda m: m.loss(TOKENS[:, :0], TOKENS[:, :0]), "tokens of shape (2, 0)"),
    "an empty prompt": ({}, lambda m: zoo.generate(m, TOKENS[:, :0], 3), "tokens of shape (2, 0): a pass needs"),
    "floats": ({}, lambda m: m(TOKENS.float()), "tokens must be an int64 tensor (batch, length), not (2, 4) float32"),
    "one dimension": ({}, lambda m: m(TOKENS[0]), "tokens must be an int64 tensor (batch, length), not (4,) int64"),
    "a token too large": ({}, lambda m: m(TOKENS + 5), "token ids must be 0 to 10, not 5 to 12"),
    "a negative token": ({}, lambda m: m(TOKENS - 1), "token ids must be 0 to 10, not -1 to 6"),
    "another batch": ({}, lambda m: m(TOKENS, m.new_cache(3, 4)), "the cache is for 3 rows, not 2"),
    "no capacity": ({}, lambda m: m.new_cache(2, -1), "capacity must be at least 1, not -1"),
    "a cache of no rows": ({}, lambda m: m.new_cache(0, 4), "batch must be at least 1, not 0"),
    "padding beyond the row": (
        {},
        lambda m: m(TOKENS, left_pad=of_rows(0, 5)),
        "left_pad must be at most 4, the length of a row, not 5",
    ),
    "padding beyond the cache": (
        {},
        lambda m: m(TOKENS, m.new_cache(2, 6), of_rows(0, 7)),
        "left_pad must be at most 6, the length of a row, not 7",
    ),
    "negative padding": ({}, lambda m: m(TOKENS, left_pad=of_rows(0, -1)), "left_pad must be at least 0, not -1"),
    "padding of one row": (
        {},
        lambda m: m(TOKENS, left_pad=of_rows(1)),
        "left_pad must be an int64 tensor (2,), one number per row, not (1,) int64",
    ),
    "a prefix beyond the row": (
        {"visible": "prefix"},
        lambda m: m(TOKENS, prefix=of_rows(5, 1)),
        "prefix must be at most 4, the length of a row, not 5",
    ),
    "a prefix beyond the row in training": (
        {"visible": "prefix"},
        lambda m: m.loss(TOKENS, TOKENS, prefix=of_rows(5, 1)),
        "prefix must be at most 4, the length of a row, not 5",
    ),
    "right padding beyond the row": (
        {"visible": "all"},
        lambda m: m(TOKENS, right_pad=of_rows(5, 1)),
        "right_pad must be at most 4, the length of a row, not 5",
    ),
    "an encoder's empty text": (
        {"encoder": {"n_layers": 1}},
        lambda m: m(TOKENS, encoder_tokens=TOKENS[:, :0]),
        "encoder_tokens of shape (2, 0): a pass needs",
    ),
    "another number of an encoder's texts": (
        {"encoder": {"n_layers": 1}},
        lambda m: m(TOKENS, encoder_tokens=TOKENS[:1]),
        "encoder_tokens must have as many rows as tokens, 2, not 1",
    ),
    "targets of other tokens": (
        {},
        lambda m: m.loss(TOKENS[:, :-1], TOKENS),
        "targets must have the shape of tokens, (2, 3), not (2, 4)",
    ),
    "a target too large": (
        {},
        lambda m: m.nats(TOKENS, TOKENS + 5),
        "targets must be 0 to 10, or -100 where nothing is scored, not 11",
    ),
    "a negative target": (
        {},
        lambda m: m.loss(TOKENS, TOKENS - 9),
        "targets must be 0 to 10, or -100 where nothing is scored, not -9",
    ),
    "tokens that are no tensor": (
        {},
        lambda m: m([[1, 2]]),
        "tokens must be an int64 tensor (batch, length), not a list",
    ),
    "one number for the padding of all rows": (
        {},
        lambda m: m(TOKENS, left_pad=1),
        "left_pad must be an int64 tensor (2,), one number per row, not 1",
    ),
    "no encoder's context to count": (
        {"encoder": {"n_layers": 1}},
        lambda m: zoo.cost(m.spec, context=4, encoder_context=0),
        "encoder_context must be at least 1, not 0",
    ),
    "no encoder's capacity": (
        {"encoder": {"n_layers": 1}},
        lambda m: m.new_cache(2, 4, encoder_capacity=0),
        "encoder_capacity must be at least 1, not 0",
    ),
    "no context to count": ({}, lambda m: zoo.cost(m.spec, context=0), "context must be at least 1, not 0"),
}


@pytest.mark.parametrize(("edits", "misuse", "message"), MISUSES.values(), ids=MISUSES)
def test_a_misuse_says_what_is_wrong(
    edits: dict[str, Any], misuse: Callable[[zoo.Decoder], object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        misuse(model_of(**edits))


KEEPING: dict[str, dict[str, Any]] = {
    "AttentionLayer": {},
    "MLALayer": {"block.mixer": "mla"},
    "GAULayer": {"block.mixer": {"kind": "gau", "head_dim": 4}},
    "a recurrent layer": {"block.mixer": "linear_attention"},
    "a recurrent layer of deltas": {"block.mixer": "gated_deltanet"},
    "FLASHLayer": {"block.mixer": {"kind": "flash", "head_dim": 4}},
    "ShortConv": {"block.mixer": {"kind": "attention", "heads": 2, "conv": 3}},
    "Block": {"block.canon": {}},
    "CrossAttentionLayer": {"encoder": {"n_layers": 1}},
}


@pytest.mark.parametrize("edits", KEEPING.values(), ids=KEEPING)
def test_another_models_cache_is_refused(edits: dict[str, Any]) -> None:
    """It was left out in silence, so that a model decoded without its past."""
    spec = zoo.load("small", **SHAPE).edit(edits)
    model, given = zoo.build(spec).eval(), {"encoder_tokens": TOKENS} if spec.encoder else {}
    others = [zoo.build(zoo.load("small", **SHAPE).edit(other)).new_cache(2, 8) for other in KEEPING.values()]
    own = model.new_cache(2, 8)
    model(TOKENS, own, **given)
    assert own.length == 4
    kinds = [kind_of_cache(cache) for cache in others]
    strangers = [cache for cache, kind in zip(others, kinds, strict=True) if not issubclass(kind, kind_of_cache(own))]
    for cache in strangers:
        with pytest.raises(TypeError, match="create the cache with this model's new_cache"):
            model(TOKENS, cache, **given)
    assert strangers


def kind_of_cache(cache: Any) -> type:
    kind: type = type(cache.layers[0])
    return kind


def test_a_cache_of_other_layers_is_refused() -> None:
    model, other = model_of(), zoo.build(zoo.load("small", **{**SHAPE, "n_layers": 2}))
    with pytest.raises(ValueError, match="the cache has 2 entries, the model needs 1: create"):
        model(TOKENS, other.new_cache(2, 4))


def test_a_cache_counts_its_rows_as_they_change() -> None:
    model = model_of()
    cache = model.new_cache(2, 8)
    model(TOKENS, cache)
    cache.reorder(of_rows(0, 0, 1))
    assert model(TOKENS[[0, 0, 1]], cache).shape == (3, 4, 11)


def test_paths_may_be_strings(tmp_path: Path) -> None:
    model = model_of()
    zoo.save(model, str(tmp_path / "model"))
    assert torch.equal(zoo.open(str(tmp_path / "model"))(TOKENS), model(TOKENS))
    with pytest.raises(FileNotFoundError, match=r"nowhere holds no saved model: it has no spec\.json"):
        zoo.open(str(tmp_path / "nowhere"))
