from __future__ import annotations

import random

from transformers import MiniCPM3Config

from tests.zoo.hf.draws import flag
from tests.zoo.hf.families.deepseek_v3 import shared


def draw(rng: random.Random) -> MiniCPM3Config:
    size = shared(rng)
    for name in ("moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "routed_scaling_factor"):
        del size[name]
    return MiniCPM3Config(
        **size,
        mlp_bias=flag(rng),
        scale_emb=rng.choice([1, 12, 3.7]),
        scale_depth=rng.choice([None, 1.4, 0.7]),
        dim_model_base=rng.choice([None, 1, 5, 256]),
    )
