from __future__ import annotations

import random

from transformers import Exaone4Config

from tests.zoo.hf.draws import gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Exaone4Config:
    size, seen = sizes(rng), rng.choice([None, 2, 5, 30])
    layers = size["num_hidden_layers"]
    return Exaone4Config(
        **size,
        hidden_act=gated_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        sliding_window=seen,
        layer_types=["full_attention"] * layers if seen is None else layer_types(rng, layers),
        rope_parameters=rope(rng, turned(size)),
    )
