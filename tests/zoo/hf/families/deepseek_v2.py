from __future__ import annotations

import random

from transformers import DeepseekV2Config

from tests.zoo.hf.draws import flag
from tests.zoo.hf.families.deepseek_v3 import shared


def draw(rng: random.Random) -> DeepseekV2Config:
    groups, size, grouped = rng.choice([1, 2, 4]), rng.choice([1, 3]), flag(rng)
    top_groups = rng.randrange(1, groups + 1)
    within = top_groups if grouped else groups
    return DeepseekV2Config(
        **shared(rng),
        mlp_bias=flag(rng),
        topk_method="group_limited_greedy" if grouped else "greedy",
        n_group=groups,
        topk_group=top_groups,
        n_routed_experts=groups * size,
        num_experts_per_tok=rng.randrange(1, within * size + 1),
        norm_topk_prob=flag(rng),
    )
