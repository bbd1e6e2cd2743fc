from __future__ import annotations

import random

from transformers import Dots1Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned
from tests.zoo.hf.families.glm4_moe import experts


def draw(rng: random.Random) -> Dots1Config:
    size = sizes(rng)
    return Dots1Config(
        **size,
        **experts(rng, size["num_hidden_layers"]),
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, size["num_hidden_layers"]),
        rope_parameters=rope(rng, turned(size)),
    )
