from __future__ import annotations

import random

from transformers import SmolLM3Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> SmolLM3Config:
    size = sizes(rng)
    layers = size["num_hidden_layers"]
    return SmolLM3Config(
        **size,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        **rng.choice(
            [
                {"no_rope_layer_interval": 2},
                {"no_rope_layers": [rng.randrange(2) for _ in range(layers)]},
                {"no_rope_layers": [rng.randrange(2) for _ in range(layers)], "layer_types": layer_types(rng, layers)},
            ]
        ),
        use_sliding_window=True,
        sliding_window=rng.choice([2, 5, 30]),
        rope_parameters=rope(rng, turned(size)),
    )
