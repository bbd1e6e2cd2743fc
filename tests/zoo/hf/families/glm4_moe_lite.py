from __future__ import annotations

import random

from transformers import Glm4MoeLiteConfig

from tests.zoo.hf.draws import flag
from tests.zoo.hf.families.deepseek_v3 import shared
from tests.zoo.hf.families.glm4_moe import experts


def draw(rng: random.Random) -> Glm4MoeLiteConfig:
    size = shared(rng)
    layers = size["num_hidden_layers"]
    del size["first_k_dense_replace"]
    routed = {**experts(rng, layers)}
    del routed["first_k_dense_replace"]
    return Glm4MoeLiteConfig(
        **size | routed,
        rope_interleave=flag(rng),
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
    )
