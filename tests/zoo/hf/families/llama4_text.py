from __future__ import annotations

import random

from transformers import Llama4TextConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> Llama4TextConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    dim, layers = head_dim(rng) or turned(size), size["num_hidden_layers"]
    return Llama4TextConfig(
        **size,
        head_dim=dim,
        intermediate_size_mlp=rng.randrange(7, 50),
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        use_qk_norm=flag(rng),
        num_local_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        moe_layers=[layer for layer in range(layers) if flag(rng)],
        no_rope_layers=rng.choice([None, [rng.randrange(2) for _ in range(layers)]]),
        no_rope_layer_interval=2,
        attention_chunk_size=rng.choice([1, 5, 30]),
        layer_types=rng.choice([None, [rng.choice(["full_attention", "chunked_attention"]) for _ in range(layers)]]),
        attn_temperature_tuning=flag(rng),
        floor_scale=rng.choice([1, 4, 8192]),
        attn_scale=rng.choice([0.1, 0.7]),
        rope_parameters=rope(rng, dim),
    )
