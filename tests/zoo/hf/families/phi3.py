from __future__ import annotations

import random

from transformers import Phi3Config

from tests.zoo.hf.draws import fraction, gated_act, rope, sizes, turned, window


def draw(rng: random.Random) -> Phi3Config:
    size = sizes(rng)
    part = fraction(rng, turned(size))
    return Phi3Config(
        **size,
        original_max_position_embeddings=6,
        hidden_act=gated_act(rng),
        sliding_window=window(rng),
        resid_pdrop=rng.choice([0.0, 0.1]),
        embd_pdrop=rng.choice([0.0, 0.1]),
        attention_dropout=rng.choice([0.0, 0.1]),
        rope_parameters=rope(rng, int(turned(size) * part), ("default", "longrope"), partial_rotary_factor=part),
    )
