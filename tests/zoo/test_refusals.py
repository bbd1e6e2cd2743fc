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
    "floats": ({}, lambda m: m(TOKENS.float()), "tokens must be (batch, length) int64, not (2, 4) float32"),
    "one dimension": ({}, lambda m: m(TOKENS[0]), "tokens must be (batch, length) int64, not (4,) int64"),
    "a token too large": ({}, lambda m: m(TOKENS + 5), "has the tokens 0 to 10, and these reach from 5 to 12"),
    "a negative token": ({}, lambda m: m(TOKENS - 1), "has the tokens 0 to 10, and these reach from -1 to 6"),
    "another batch": ({}, lambda m: m(TOKENS, m.new_cache(3, 4)), "the cache holds 3 rows, and 2 are given"),
    "no capacity": ({}, lambda m: m.new_cache(2, -1), "capacity must be at least 1, not -1"),
    "a cache of no rows": ({}, lambda m: m.new_cache(0, 4), "batch must be at least 1, not 0"),
    "padding beyond the row": (
        {},
        lambda m: m(TOKENS, left_pad=of_rows(0, 5)),
        "left_pad is 5, and a row has 4 tokens",
    ),
    "padding beyond the cache": (
        {},
        lambda m: m(TOKENS, m.new_cache(2, 6), of_rows(0, 7)),
        "left_pad is 7, and a row has 6 tokens",
    ),
    "negative padding": ({}, lambda m: m(TOKENS, left_pad=of_rows(0, -1)), "left_pad counts tokens: it cannot be -1"),
    "padding of one row": ({}, lambda m: m(TOKENS, left_pad=of_rows(1)), "left_pad must be (2,) int64, one number for"),
    "a prefix beyond the row": (
        {"visible": "prefix"},
        lambda m: m(TOKENS, prefix=of_rows(5, 1)),
        "prefix is 5, and a row has 4 tokens",
    ),
    "a prefix beyond the row in training": (
        {"visible": "prefix"},
        lambda m: m.loss(TOKENS, TOKENS, prefix=of_rows(5, 1)),
        "prefix is 5, and a row has 4 tokens",
    ),
    "right padding beyond the row": (
        {"visible": "all"},
        lambda m: m(TOKENS, right_pad=of_rows(5, 1)),
        "right_pad is 5, and a row has 4 tokens",
    ),
    "an encoder's empty text": (
        {"encoder": {"n_layers": 1}},
        lambda m: m(TOKENS, encoder_tokens=TOKENS[:, :0]),
        "encoder_tokens of shape (2, 0): a pass needs",
    ),
    "no context to count": ({}, lambda m: zoo.cost(m.spec, context=0), "context must be at least 1, not 0"),
}


@pytest.mark.parametrize(("edits", "misuse", "message"), MISUSES.values(), ids=MISUSES)
def test_a_misuse_says_what_is_wrong(
    edits: dict[str, Any], misuse: Callable[[zoo.Decoder], object], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        misuse(model_of(**edits))


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
