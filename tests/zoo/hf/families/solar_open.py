from __future__ import annotations

import random

from transformers import SolarOpenConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned
from tests.zoo.hf.families.glm4_moe import experts


def draw(rng: random.Random) -> SolarOpenConfig:
    size = sizes(rng)
    dim, routed = head_dim(rng) or turned(size), experts(rng, size["num_hidden_layers"])
    del size["intermediate_size"], routed["first_k_dense_replace"]
    return SolarOpenConfig(
        **size,
        **routed,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rope_parameters=rope(rng, dim),
    )
