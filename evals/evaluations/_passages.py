"""Passages of held-out text, drawn with a seed, so that all arms of a study get the same ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from evals.found import Found
from evals.reading.windows import Text
from zoo.model import Decoder
from zoo.spec import longest_text


def starts_of(text: Text, length: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Starts of up to `wanted` non-overlapping passages of `length` tokens."""
    slots = len(text.tokens) // length
    chosen = np.random.default_rng(seed).choice(slots, min(wanted, slots), replace=False)
    return np.sort(chosen) * length


def obstacle(model: Decoder, text: Text, *, reads: int, takes: int) -> str | None:
    """Reason why a model cannot read `reads` tokens, or the text has no passage of `takes` tokens; None if both fit."""
    end = longest_text(model.spec)
    if end is not None and reads > end:
        return f"reads at most {end} tokens, and a passage needs {reads}"
    if takes > len(text.tokens):
        return f"held-out text has {len(text.tokens)} tokens, and a passage needs {takes}"
    return None


def nothing(reason: str) -> Found:
    return Found(rows=[{"reason": reason}])


def plain(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Text of tokens, special ones included; a token that is only part of a character gives a replacement character."""
    return str(tokenizer.decode(tokens, skip_special_tokens=False))
