from __future__ import annotations

import random

from transformers import Cohere2MoeConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> Cohere2MoeConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    layers, dim = size["num_hidden_layers"], rng.choice([turned(size), 8])
    return Cohere2MoeConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        rms_norm_eps=rng.choice([None, 1e-3]),
        logit_scale=rng.choice([0.0625, 1.7]),
        attention_bias=flag(rng),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        num_shared_experts=rng.choice([0, 1, 2]),
        shared_expert_combination_strategy=rng.choice(["average", "sum"]),
        expert_selection_fn=rng.choice(["softmax", "sigmoid"]),
        norm_topk_prob=flag(rng),
        prefix_dense_intermediate_size=rng.choice([None, 13]),
        prefix_dense_sliding_window_pattern=rng.choice([1, 2]),
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
        sliding_window=rng.choice([1, 3, 40]),
        layer_types=layer_types(rng, layers),
        rope_parameters=rope(rng, dim, ("default", "linear", "llama3", "yarn")),
    )
