from __future__ import annotations

import random

from transformers import GraniteConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> GraniteConfig:
    size = sizes(rng)
    return GraniteConfig(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        embedding_multiplier=rng.choice([1.0, 12, 3.7]),
        logits_scaling=rng.choice([1.0, 16, 0.3, 49.0]),
        residual_multiplier=rng.choice([1.0, 0.22]),
        attention_multiplier=rng.choice([1.0, 0.0078125, 0.3]),
        rope_parameters=rope(rng, turned(size)),
    )
