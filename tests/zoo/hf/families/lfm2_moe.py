from __future__ import annotations

import random

from transformers import Lfm2MoeConfig

from tests.zoo.hf.draws import flag, rope, sizes, turned
from tests.zoo.hf.families.lfm2 import KINDS, operators


def draw(rng: random.Random) -> Lfm2MoeConfig:
    size, count = sizes(rng), rng.choice([1, 3, 8])
    layers = size["num_hidden_layers"]
    return Lfm2MoeConfig(
        **size,
        **operators(rng, layers),
        moe_intermediate_size=rng.randrange(3, 20),
        num_dense_layers=rng.randrange(layers + 1),
        num_experts=count,
        num_experts_per_tok=rng.randrange(1, min(count, 3) + 1),
        use_expert_bias=flag(rng),
        norm_topk_prob=flag(rng),
        routed_scaling_factor=rng.choice([1.0, 2.5]),
        rope_parameters=rope(rng, turned(size), KINDS),
    )
