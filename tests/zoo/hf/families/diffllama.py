from __future__ import annotations

import random

from transformers import DiffLlamaConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> DiffLlamaConfig:
    size = sizes(rng)
    size["num_key_value_heads"] *= 2
    size["num_attention_heads"] *= 2
    size["hidden_size"] *= 2
    dim = head_dim(rng) or turned(size)
    return DiffLlamaConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rms_norm_eps=rng.choice([1e-5, 1e-3]),
        rope_parameters=rope(rng, dim),
    )
