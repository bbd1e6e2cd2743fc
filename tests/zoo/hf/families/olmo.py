from __future__ import annotations

import random

from transformers import OlmoConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> OlmoConfig:
    size = sizes(rng)
    return OlmoConfig(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        clip_qkv=rng.choice([None, 0.5, 2.0]),
        rope_parameters=rope(rng, turned(size)),
    )
