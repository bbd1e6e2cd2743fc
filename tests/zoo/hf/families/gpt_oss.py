from __future__ import annotations

import random

from transformers import GptOssConfig

from tests.zoo.hf.draws import flag, layer_types, rope, sizes


def draw(rng: random.Random) -> GptOssConfig:
    size, dim = sizes(rng), rng.choice([2, 8, 14])
    return GptOssConfig(
        **size,
        head_dim=dim,
        attention_bias=flag(rng),
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=rng.choice([None, layer_types(rng, size["num_hidden_layers"])]),
        num_local_experts=rng.choice([4, 7]),
        num_experts_per_tok=rng.choice([1, 2, 4]),
        swiglu_alpha=rng.choice([1.702, 0.9]),
        swiglu_limit=rng.choice([7.0, 0.4]),
        rope_parameters=rope(rng, dim),
    )
