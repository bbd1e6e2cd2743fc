from __future__ import annotations

import random
from typing import Any

from transformers import KimiLinearConfig

from tests.zoo.hf.draws import any_act, flag, sizes


def draw(rng: random.Random) -> KimiLinearConfig:
    size, width = sizes(rng), rng.choice([4, 7])
    del size["max_position_embeddings"]
    return KimiLinearConfig(
        **size | {"num_key_value_heads": size["num_attention_heads"]},
        **latent(rng),
        **experts(rng),
        q_lora_rank=rng.choice([None, 5]),
        linear_num_heads=rng.choice([1, 2, 3]),
        linear_head_dim=width,
        linear_conv_kernel_dim=rng.choice([2, 3, 4]),
        **kinds(rng, size["num_hidden_layers"]),
    )


def latent(rng: random.Random) -> dict[str, Any]:
    return {
        "hidden_act": any_act(rng),
        "rms_norm_eps": rng.choice([1e-6, 1e-3]),
        "attention_bias": flag(rng),
        "kv_lora_rank": rng.choice([4, 9]),
        "qk_nope_head_dim": rng.choice([3, 10]),
        "qk_rope_head_dim": rng.choice([2, 6]),
        "v_head_dim": rng.choice([2, 7]),
    }


def experts(rng: random.Random) -> dict[str, Any]:
    groups, each = rng.choice([1, 2, 4]), rng.choice([2, 3])
    top_groups = rng.randrange(1, groups + 1)
    return {
        "n_group": groups,
        "topk_group": top_groups,
        "num_local_experts": groups * each,
        "num_experts_per_tok": rng.randrange(1, top_groups * each + 1),
        "norm_topk_prob": flag(rng),
        "moe_intermediate_size": rng.randrange(3, 20),
        "n_shared_experts": rng.choice([1, 2]),
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
    }


def kinds(rng: random.Random, layers: int) -> dict[str, list[str]]:
    """The first layer attends: transformers asks it how long the cache is."""
    mixers = [rng.choice(["full_attention", "linear_attention"]) for _ in range(layers - 1)]
    return {
        "layer_types": ["full_attention", *mixers],
        "mlp_layer_types": [rng.choice(["dense", "sparse"]) for _ in range(layers)],
    }
