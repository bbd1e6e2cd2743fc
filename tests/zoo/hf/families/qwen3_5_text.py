from __future__ import annotations

import random

from transformers.models.qwen3_5 import Qwen3_5TextConfig

from tests.zoo.hf.draws import any_act, flag, head_dim, partial_rope, sizes, turned


def draw(rng: random.Random) -> Qwen3_5TextConfig:
    size, k_heads = sizes(rng), rng.choice([1, 2, 3])
    dim, layers = head_dim(rng) or turned(size), size["num_hidden_layers"]
    axes = rng.choice([{}, {"mrope_interleaved": True, "mrope_section": [1, 0, 0]}])
    return Qwen3_5TextConfig(
        **size,
        head_dim=dim,
        rope_parameters={**partial_rope(rng, dim), **axes},
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
        attention_bias=flag(rng),
        hidden_act=any_act(rng),
    )
