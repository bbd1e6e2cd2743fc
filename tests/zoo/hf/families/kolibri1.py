from __future__ import annotations

import random

from transformers import Kolibri1Config

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes


def draw(rng: random.Random) -> Kolibri1Config:
    size, dim, count = sizes(rng), rng.choice([2, 8, 14]), rng.choice([1, 3, 8])
    del size["intermediate_size"]
    return Kolibri1Config(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        moe_intermediate_size=rng.randrange(5, 20),
        shared_expert_intermediate_size=rng.randrange(5, 40),
        norm_topk_prob=flag(rng),
        sliding_window=rng.choice([1, 5, 30]),
        layer_types=layer_types(rng, size["num_hidden_layers"]),
        rope_parameters=rope(rng, dim, ("default", "linear", "llama3", "yarn")),
    )
