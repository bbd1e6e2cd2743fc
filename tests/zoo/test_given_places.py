"""Mixers that cut a text into chunks count its tokens, whatever places their positions are given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.conformance.combinations import random_model, random_tokens

LENGTH = 19
PADS = torch.tensor([0, 3, 6])
EVERY_CUT = pytest.mark.parametrize("parts", [[1] * LENGTH, [5, 1, 1, 9, 3]], ids=str)
FLASH = {"kind": "flash", "chunk": 4, "head_dim": 6}
MIXERS: dict[str, dict[str, Any]] = {
    "flash": FLASH,
    "flash without positions": {**FLASH, "position": "nope"},
    "ttt": {"kind": "ttt", "chunk": 4},
}


@EVERY_CUT
@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
@torch.no_grad()
def test_places_that_are_all_shifted_change_nothing(mixer: dict[str, Any], parts: list[int]) -> None:
    """Rotary positions see differences of places alone. 7 is no multiple of the chunk, so that counting by the given
    places would cut each text elsewhere. The reference is each row by itself, in one pass, without padding."""
    spec = zoo.load("small", d_model=24, n_layers=2, vocab_size=31, **{"block.mixer": mixer})
    model, tokens = random_model(spec).double(), random_tokens(spec, len(PADS), LENGTH)
    places = torch.arange(LENGTH) - PADS[:, None] + 7
    cache, start, found = model.new_cache(len(PADS), LENGTH), 0, []
    for chunk in tokens.split(parts, dim=1):
        end = start + chunk.shape[1]
        found.append(model(chunk, cache, None if start else PADS, places=places[:, start:end]))
        start = end
    for row, pad in enumerate(PADS.tolist()):
        alone = model(tokens[row : row + 1, pad:])[0]
        for logits in (torch.cat(found, dim=1), model(tokens, left_pad=PADS, places=places)):
            torch.testing.assert_close(logits[row, pad:], alone, rtol=1e-5, atol=1e-5)
