from __future__ import annotations

import random
from typing import Any

from transformers import ExaoneMoeConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned


def draw(rng: random.Random) -> ExaoneMoeConfig:
    size = sizes(rng)
    layers = size["num_hidden_layers"]
    return ExaoneMoeConfig(
        **size,
        **experts(rng, layers),
        norm_topk_prob=flag(rng),
        hidden_act=gated_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        sliding_window=rng.choice([1, 5, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters=rope(rng, turned(size), ("default", "linear", "llama3", "yarn")),
    )


def experts(rng: random.Random, layers: int) -> dict[str, Any]:
    """Settings of experts in groups, in layers that are listed."""
    groups, each = rng.choice([1, 2, 4]), rng.choice([2, 3])
    top_groups = rng.randrange(1, groups + 1)
    return {
        "n_group": groups,
        "topk_group": top_groups,
        "num_experts": groups * each,
        "num_experts_per_tok": rng.randrange(1, top_groups * each + 1),
        "moe_intermediate_size": rng.randrange(3, 20),
        "num_shared_experts": rng.choice([1, 2]),
        "mlp_layer_types": [rng.choice(["dense", "sparse"]) for _ in range(layers)],
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
    }
