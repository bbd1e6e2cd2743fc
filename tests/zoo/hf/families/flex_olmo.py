from __future__ import annotations

import random

from transformers import FlexOlmoConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned


def draw(rng: random.Random) -> FlexOlmoConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    return FlexOlmoConfig(
        **size,
        hidden_act=gated_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=flag(rng),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        norm_topk_prob=flag(rng),
        output_router_logits=flag(rng),
        rope_parameters=rope(rng, turned(size)),
    )
