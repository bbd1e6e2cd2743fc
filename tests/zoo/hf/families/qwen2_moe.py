from __future__ import annotations

import random

from transformers import Qwen2MoeConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes, turned
from tests.zoo.hf.families.qwen3_moe import experts


def draw(rng: random.Random) -> Qwen2MoeConfig:
    size, windowed = sizes(rng), flag(rng)
    layers = size["num_hidden_layers"]
    return Qwen2MoeConfig(
        **size,
        **experts(rng, layers),
        shared_expert_intermediate_size=rng.randrange(5, 40),
        hidden_act=gated_act(rng),
        qkv_bias=flag(rng),
        use_sliding_window=windowed,
        sliding_window=rng.choice([1, 4, 30]),
        layer_types=layer_types(rng, layers) if windowed else None,
        rope_parameters=rope(rng, turned(size)),
    )
