from __future__ import annotations

import random

from transformers import YoutuConfig

from tests.zoo.hf.draws import flag
from tests.zoo.hf.families.deepseek_v3 import shared


def draw(rng: random.Random) -> YoutuConfig:
    size = shared(rng)
    for name in ("moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "routed_scaling_factor"):
        del size[name]
    return YoutuConfig(**size, rope_interleave=flag(rng))
