from __future__ import annotations

import random
from typing import Any

from transformers import DeepseekV3Config

from tests.zoo.hf.draws import flag, gated_act, rope, sizes


def draw(rng: random.Random) -> DeepseekV3Config:
    groups = rng.choice([1, 2, 4])
    top_groups, size = rng.randrange(1, groups + 1), rng.choice([2, 3])
    return DeepseekV3Config(
        **shared(rng),
        n_group=groups,
        topk_group=top_groups,
        n_routed_experts=groups * size,
        num_experts_per_tok=rng.randrange(1, top_groups * size + 1),
        norm_topk_prob=flag(rng),
        rope_interleave=flag(rng),
    )


def shared(rng: random.Random) -> dict[str, Any]:
    size, turned = sizes(rng), rng.choice([2, 6, 8])
    size["num_key_value_heads"] = size["num_attention_heads"]
    return {
        **size,
        "hidden_act": gated_act(rng),
        "attention_bias": flag(rng),
        "q_lora_rank": rng.choice([None, 5, 16]),
        "kv_lora_rank": rng.choice([4, 10]),  # even, as are head sizes: V2's complex numbers ask for it
        "qk_nope_head_dim": rng.choice([4, 10]),
        "qk_rope_head_dim": turned,
        "v_head_dim": rng.choice([2, 7, 8]),
        "moe_intermediate_size": rng.randrange(3, 20),
        "n_shared_experts": rng.choice([1, 2]),
        "first_k_dense_replace": rng.randrange(0, size["num_hidden_layers"] + 1),
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
        "rope_parameters": rope(rng, turned),
    }
