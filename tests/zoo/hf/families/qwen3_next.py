from __future__ import annotations

import random

from transformers import Qwen3NextConfig

from tests.zoo.hf.draws import flag, head_dim, partial_rope, sizes, turned


def draw(rng: random.Random) -> Qwen3NextConfig:
    size, experts, width = sizes(rng), rng.choice([1, 3, 8]), rng.randrange(5, 20)
    dim, layers, k_heads = head_dim(rng) or turned(size), size["num_hidden_layers"], rng.choice([1, 2, 3])
    dense, every = [layer for layer in range(layers) if flag(rng)], rng.choice([1, 2])
    sparse = [layer for layer in range(layers) if layer not in dense and (layer + 1) % every == 0]
    return Qwen3NextConfig(
        **size,
        head_dim=dim,
        rope_parameters=partial_rope(rng, dim),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        layer_types=[
            "full_attention",
            *(rng.choice(["full_attention", "linear_attention"]) for _ in range(layers - 1)),
        ],
        linear_num_key_heads=k_heads,
        linear_num_value_heads=k_heads * rng.choice([1, 2, 3]),
        linear_key_head_dim=rng.choice([4, 7]),
        linear_value_head_dim=rng.choice([3, 8]),
        linear_conv_kernel_dim=rng.choice([2, 3, 4]),
        num_experts=experts,
        num_experts_per_tok=rng.randrange(1, min(experts, 3) + 1),
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width * rng.choice([1, 2]),
        norm_topk_prob=flag(rng),
        mlp_only_layers=dense,
        decoder_sparse_step=every,
        # Without experts transformers has no logits to give, and fails.
        output_router_logits=bool(sparse) and flag(rng),
    )
