from __future__ import annotations

import random

from transformers import OlmoHybridConfig

from tests.zoo.hf.draws import any_act, flag, rope, sizes, turned
from tests.zoo.hf.families.qwen3_next import linear_layers


def draw(rng: random.Random) -> OlmoHybridConfig:
    size, k_heads = sizes(rng), rng.choice([1, 2, 3])
    size["num_hidden_layers"] = max(2, size["num_hidden_layers"])
    linear = linear_layers(rng, size["num_hidden_layers"], k_heads)
    linear["layer_types"][-1] = "linear_attention"
    turned_by = rope(rng, turned(size), ("default", "linear", "llama3"))
    return OlmoHybridConfig(
        **size,
        **linear,
        linear_allow_neg_eigval=flag(rng),
        hidden_act=any_act(rng),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=flag(rng),
        rope_parameters=rng.choice([turned_by, {"rope_type": "default", "rope_theta": None}]),
    )
