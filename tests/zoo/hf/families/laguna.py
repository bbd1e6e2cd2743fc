from __future__ import annotations

import random
from typing import Any

from transformers import LagunaConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes


def draw(rng: random.Random) -> LagunaConfig:
    size, dim, count = sizes(rng), rng.choice([4, 8, 14]), rng.choice([1, 3, 8])
    layers, kv_heads = size["num_hidden_layers"], size["num_key_value_heads"]
    kinds = ("sliding_attention", "full_attention")
    return LagunaConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        gating=rng.choice([True, "per-head", "per-feature"]),
        num_attention_heads_per_layer=[kv_heads * rng.choice([1, 2, 3]) for _ in range(layers)],
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        moe_intermediate_size=rng.randrange(5, 20),
        shared_expert_intermediate_size=rng.randrange(5, 40),
        moe_routed_scaling_factor=rng.choice([1.0, 2.5]),
        moe_router_logit_softcapping=rng.choice([0.0, 1.5]),
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters={kind: parameters(rng, dim) for kind in kinds},
    )


def parameters(rng: random.Random, dim: int) -> dict[str, Any]:
    count = rng.randrange(2, dim + 1, 2)
    return rope(rng, count, ("default", "linear", "llama3"), partial_rotary_factor=min(1.0, (count + 0.3) / dim))
