from __future__ import annotations

import random

from transformers import HeliumConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> HeliumConfig:
    size = sizes(rng)
    return HeliumConfig(
        **size,
        head_dim=turned(size),
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        rope_parameters=rope(rng, turned(size)),
    )
