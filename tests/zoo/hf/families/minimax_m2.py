from __future__ import annotations

import random

from transformers import MiniMaxM2Config

from tests.zoo.hf.draws import gated_act, head_dim, partial_rope, sizes, turned


def draw(rng: random.Random) -> MiniMaxM2Config:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    dim = head_dim(rng) or turned(size)
    return MiniMaxM2Config(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        num_local_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        rope_parameters=partial_rope(rng, dim),
    )
