from __future__ import annotations

import random

from transformers import Qwen3_5MoeTextConfig

from tests.zoo.hf.draws import any_act, flag, head_dim, partial_rope, sizes, turned
from tests.zoo.hf.families.qwen3_next import linear_layers


def draw(rng: random.Random) -> Qwen3_5MoeTextConfig:
    size, k_heads, count = sizes(rng), rng.choice([1, 2, 3]), rng.choice([1, 3, 8])
    dim, layers = head_dim(rng) or turned(size), size["num_hidden_layers"]
    del size["intermediate_size"]
    return Qwen3_5MoeTextConfig(
        **size,
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        moe_intermediate_size=rng.randrange(5, 20),
        shared_expert_intermediate_size=rng.randrange(5, 40),
        output_router_logits=flag(rng),
        head_dim=dim,
        rope_parameters=partial_rope(rng, dim),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        **linear_layers(rng, layers, k_heads),
        attention_bias=flag(rng),
        hidden_act=any_act(rng),
    )
