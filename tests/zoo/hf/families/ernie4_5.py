from __future__ import annotations

import random

from transformers import Ernie4_5Config

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> Ernie4_5Config:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return Ernie4_5Config(
        **size, head_dim=dim, hidden_act=gated_act(rng), use_bias=flag(rng), rope_parameters=rope(rng, dim)
    )
