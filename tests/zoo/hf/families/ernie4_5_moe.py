from __future__ import annotations

import random

from transformers import Ernie4_5_MoeConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> Ernie4_5_MoeConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    layers = size["num_hidden_layers"]
    return Ernie4_5_MoeConfig(
        **size,
        moe_num_experts=count,
        moe_k=rng.randrange(1, min(count, 3) + 1),
        moe_intermediate_size=rng.randrange(5, 20),
        moe_num_shared_experts=rng.choice([0, 1, 2]),
        moe_layer_start_index=rng.randrange(0, layers),
        moe_layer_end_index=rng.choice([-1, layers - 1]),
        moe_layer_interval=rng.choice([1, 2]),
        hidden_act=gated_act(rng),
        use_bias=flag(rng),
        rope_parameters=rope(rng, turned(size)),
    )
