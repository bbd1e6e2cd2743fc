from __future__ import annotations

import random

from transformers import ArceeConfig

from tests.zoo.hf.draws import act, flag, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> ArceeConfig:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return ArceeConfig(
        **size,
        head_dim=dim,
        hidden_act=act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        rope_parameters=rope(rng, dim),
    )
