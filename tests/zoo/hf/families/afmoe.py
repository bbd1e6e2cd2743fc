from __future__ import annotations

import random

from transformers import AfmoeConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> AfmoeConfig:
    size = sizes(rng)
    dim, layers, count = head_dim(rng) or turned(size), size["num_hidden_layers"], rng.choice([1, 3, 8])
    return AfmoeConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mup_enabled=flag(rng),
        moe_intermediate_size=rng.randrange(3, 20),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, count + 1),
        num_shared_experts=rng.choice([1, 2]),
        num_dense_layers=rng.randrange(layers + 1),
        route_scale=rng.choice([1.0, 2.826]),
        sliding_window=rng.choice([1, 5, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters=rope(rng, dim, ("default", "linear", "llama3", "yarn")),
    )
