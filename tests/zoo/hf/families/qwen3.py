from __future__ import annotations

import random

from transformers import Qwen3Config

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned
from tests.zoo.hf.families.qwen2 import windows


def draw(rng: random.Random) -> Qwen3Config:
    size, dim = sizes(rng), rng.choice([2, 8, 14])
    return Qwen3Config(
        **size,
        **windows(rng, size),
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        rope_parameters=rope(rng, dim or turned(size)),
    )
