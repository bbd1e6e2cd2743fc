from __future__ import annotations

import random

from transformers import Gemma3TextConfig

from tests.zoo.hf.draws import rope
from tests.zoo.hf.families.gemma2 import shared


def draw(rng: random.Random) -> Gemma3TextConfig:
    dim = rng.choice([2, 8, 14])
    # Of YaRN by kind of layer, transformers looks for `truncate` at the wrong place.
    positions = {kind: {**rope(rng, dim)} for kind in ("sliding_attention", "full_attention")}
    for each in positions.values():
        each.pop("truncate", None)
    return Gemma3TextConfig(**shared(rng), head_dim=dim, rope_parameters=positions)
