from __future__ import annotations

import random
from typing import Any

from transformers import Qwen3MoeConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, window


def draw(rng: random.Random) -> Qwen3MoeConfig:
    size, dim, seen = sizes(rng), rng.choice([2, 8, 14]), window(rng)
    return Qwen3MoeConfig(
        **size,
        **experts(rng, size["num_hidden_layers"]),
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        use_sliding_window=seen is not None,
        sliding_window=seen,
        rope_parameters=rope(rng, dim),
    )


def experts(rng: random.Random, layers: int) -> dict[str, Any]:
    """Settings of experts, which some of the layers have."""
    count, dense, every = rng.choice([1, 3, 8]), [layer for layer in range(layers) if flag(rng)], rng.choice([1, 2])
    sparse = [layer for layer in range(layers) if layer not in dense and (layer + 1) % every == 0]
    return {
        "num_experts": count,
        "num_experts_per_tok": rng.randrange(1, min(count, 3) + 1),
        "moe_intermediate_size": rng.randrange(5, 20),
        "norm_topk_prob": flag(rng),
        "mlp_only_layers": dense,
        "decoder_sparse_step": every,
        # Without experts transformers has no logits to give, and fails.
        "output_router_logits": bool(sparse) and flag(rng),
    }
