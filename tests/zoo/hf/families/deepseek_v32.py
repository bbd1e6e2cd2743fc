from __future__ import annotations

import random
from typing import Any

from transformers import DeepseekV32Config

from tests.zoo.hf.draws import flag
from tests.zoo.hf.families import deepseek_v3


def draw(rng: random.Random) -> DeepseekV32Config:
    return DeepseekV32Config(**sparse(rng))


def sparse(rng: random.Random) -> dict[str, Any]:
    groups = rng.choice([1, 2, 4])
    top_groups, size = rng.randrange(1, groups + 1), rng.choice([2, 3])
    shared = deepseek_v3.shared(rng)
    return {
        **shared,
        "q_lora_rank": rng.choice([5, 16]),  # there always is one
        "n_group": groups,
        "topk_group": top_groups,
        "n_routed_experts": groups * size,
        "num_experts_per_tok": rng.randrange(1, top_groups * size + 1),
        "norm_topk_prob": flag(rng),
        "index_topk": rng.choice([2, 5, 2048]),
        # Many heads, so that no two keys have a score of zero: transformers does not say which of them it takes.
        "index_n_heads": rng.choice([24, 33]),
        "index_head_dim": shared["qk_rope_head_dim"] + rng.choice([0, 3, 8]),
    }
