from __future__ import annotations

import random
from typing import Any

from transformers import Qwen3NextConfig

from tests.zoo.hf.draws import any_act, flag, head_dim, partial_rope, sizes, turned
from tests.zoo.hf.families.qwen3_moe import experts


def linear_layers(rng: random.Random, layers: int, k_heads: int) -> dict[str, Any]:
    """Which layers are linear, and their sizes."""
    others = (rng.choice(["full_attention", "linear_attention"]) for _ in range(layers - 1))
    return {
        "layer_types": ["full_attention", *others],
        "linear_num_key_heads": k_heads,
        "linear_num_value_heads": k_heads * rng.choice([1, 2, 3]),
        "linear_key_head_dim": rng.choice([4, 7]),
        "linear_value_head_dim": rng.choice([3, 8]),
        "linear_conv_kernel_dim": rng.choice([2, 3, 4]),
    }


def draw(rng: random.Random) -> Qwen3NextConfig:
    size, k_heads = sizes(rng), rng.choice([1, 2, 3])
    dim, layers = head_dim(rng) or turned(size), size["num_hidden_layers"]
    return Qwen3NextConfig(
        **size,
        **experts(rng, layers),
        head_dim=dim,
        rope_parameters=partial_rope(rng, dim),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        **linear_layers(rng, layers, k_heads),
        shared_expert_intermediate_size=rng.randrange(5, 40),
        attention_bias=flag(rng),
        hidden_act=any_act(rng),
    )
