from __future__ import annotations

import random

from transformers import Olmo2Config

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> Olmo2Config:
    size = sizes(rng)
    return Olmo2Config(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        rope_parameters=rope(rng, turned(size)),
    )
