from __future__ import annotations

import random

from transformers import HYV3Config

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> HYV3Config:
    size = sizes(rng)
    dim, layers, count = head_dim(rng) or turned(size), size["num_hidden_layers"], rng.choice([2, 3, 8])
    return HYV3Config(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        moe_intermediate_size=rng.randrange(3, 20),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, count + 1),
        num_shared_experts=rng.choice([1, 2]),
        router_scaling_factor=rng.choice([1.0, 2.826]),
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
        rope_parameters=rope(rng, dim),
    )
