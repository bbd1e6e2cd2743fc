from __future__ import annotations

import random

from transformers import RecurrentGemmaConfig

from tests.zoo.hf.draws import flag, sizes, turned


def draw(rng: random.Random) -> RecurrentGemmaConfig:
    size = sizes(rng)
    size["num_hidden_layers"] = max(3, size["num_hidden_layers"])  # one attends, which tells a cache's length
    del size["max_position_embeddings"]
    count = rng.randrange(1, turned(size) // 2 + 1) * 2
    return RecurrentGemmaConfig(
        **size,
        lru_width=rng.choice([None, size["num_attention_heads"] * 3]),
        conv1d_width=rng.choice([2, 3, 4]),
        attention_window_size=rng.choice([1, 5, 30]),
        attention_bias=flag(rng),
        block_types=rng.choice([["recurrent", "recurrent", "attention"], ["attention", "recurrent"]]),
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": count / turned(size)},
    )
