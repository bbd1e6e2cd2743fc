from __future__ import annotations

import random

from transformers import SeedOssConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> SeedOssConfig:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return SeedOssConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        attention_out_bias=flag(rng),
        mlp_bias=flag(rng),
        rope_parameters=rope(rng, dim),
    )
