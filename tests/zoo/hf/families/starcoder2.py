from __future__ import annotations

import random

from transformers import Starcoder2Config

from tests.zoo.hf.draws import act, flag, rope, sizes, turned, window


def draw(rng: random.Random) -> Starcoder2Config:
    size = sizes(rng)
    return Starcoder2Config(
        **size,
        hidden_act=act(rng),
        use_bias=flag(rng),
        norm_epsilon=rng.choice([1e-5, 1e-3]),
        sliding_window=window(rng),
        residual_dropout=rng.choice([0.0, 0.1]),
        embedding_dropout=rng.choice([0.0, 0.1]),
        attention_dropout=rng.choice([0.0, 0.1]),
        rope_parameters=rope(rng, turned(size)),
    )
