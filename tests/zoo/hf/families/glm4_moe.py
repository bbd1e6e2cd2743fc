from __future__ import annotations

import random
from typing import Any

from transformers import Glm4MoeConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, partial_rope, sizes, turned


def draw(rng: random.Random) -> Glm4MoeConfig:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return Glm4MoeConfig(
        **size,
        **experts(rng, size["num_hidden_layers"]),
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        use_qk_norm=flag(rng),
        rope_parameters=partial_rope(rng, dim),
    )


def experts(rng: random.Random, layers: int) -> dict[str, Any]:
    """Settings of experts in groups, after some dense layers."""
    groups, each = rng.choice([1, 2, 4]), rng.choice([2, 3])
    top_groups = rng.randrange(1, groups + 1)
    return {
        "n_group": groups,
        "topk_group": top_groups,
        "n_routed_experts": groups * each,
        "num_experts_per_tok": rng.randrange(1, top_groups * each + 1),
        "norm_topk_prob": flag(rng),
        "moe_intermediate_size": rng.randrange(3, 20),
        "n_shared_experts": rng.choice([1, 2]),
        "first_k_dense_replace": rng.randrange(0, layers + 1),
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
    }
