from __future__ import annotations

import random

from transformers import FlintConfig

from tests.zoo.hf.draws import flag, gated_act, layer_types, rope, sizes
from tests.zoo.hf.families.qwen3_moe import experts


def draw(rng: random.Random) -> FlintConfig:
    size, dim = sizes(rng), rng.choice([2, 8, 14])
    layers = size["num_hidden_layers"]
    return FlintConfig(
        **size,
        **experts(rng, layers) | {"output_router_logits": False},
        shared_expert_intermediate_size=rng.randrange(5, 40),
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        sliding_window=rng.choice([1, 5, 30]),
        layer_types=layer_types(rng, layers),
        rope_parameters=rope(rng, dim, ("default", "linear", "llama3", "yarn")),
    )
