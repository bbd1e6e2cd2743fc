from __future__ import annotations

import random

from transformers import MixtralConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned, window


def draw(rng: random.Random) -> MixtralConfig:
    size, experts = sizes(rng), rng.choice([1, 3, 8])
    dim = head_dim(rng) or turned(size)
    return MixtralConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        sliding_window=window(rng),
        num_local_experts=experts,
        num_experts_per_tok=rng.randrange(1, min(experts, 3) + 1),
        output_router_logits=flag(rng),
        rope_parameters=rope(rng, dim),
    )
