from __future__ import annotations

import random

from transformers import Jais2Config

from tests.zoo.hf.draws import act, flag, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> Jais2Config:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return Jais2Config(
        **size,
        head_dim=dim,
        hidden_act=act(rng),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        rope_parameters=rope(rng, dim),
    )
