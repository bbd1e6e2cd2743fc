from __future__ import annotations

import random

from transformers import ApertusConfig

from tests.zoo.hf.draws import act, flag, rope, sizes, turned


def draw(rng: random.Random) -> ApertusConfig:
    size = sizes(rng)
    return ApertusConfig(
        **size,
        hidden_act=rng.choice(["xielu", act(rng)]),
        rms_norm_eps=rng.choice([1e-5, 1e-3]),
        attention_bias=flag(rng),
        rope_parameters=rope(rng, turned(size)),
    )
