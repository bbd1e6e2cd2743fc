from __future__ import annotations

import random

from transformers import PhimoeConfig

from tests.zoo.hf.draws import flag, gated_act, rope, sizes, turned, window


def draw(rng: random.Random) -> PhimoeConfig:
    size = sizes(rng)
    rotation = rope(rng, turned(size) // 2 * 2, ("default", "longrope"))
    if rotation["rope_type"] == "longrope":
        # Longer than the text: past it transformers still takes the short factors.
        rotation |= dict.fromkeys(("short_mscale", "long_mscale"), 1.2) | {"original_max_position_embeddings": 64}
    return PhimoeConfig(
        **size,
        hidden_act=gated_act(rng),
        sliding_window=window(rng),
        num_local_experts=rng.choice([2, 3, 8]),
        router_jitter_noise=rng.choice([0.0, 0.01, 0.3]),
        rms_norm_eps=rng.choice([1e-6, 1e-3]),
        attention_bias=flag(rng),
        lm_head_bias=flag(rng),
        output_router_logits=flag(rng),
        rope_parameters=rotation,
    )
