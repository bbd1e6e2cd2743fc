from __future__ import annotations

import random

from transformers import HyperCLOVAXConfig

from tests.zoo.hf.draws import flag, gated_act, head_dim, rope, sizes, turned


def draw(rng: random.Random) -> HyperCLOVAXConfig:
    size = sizes(rng)
    dim = head_dim(rng) or turned(size)
    return HyperCLOVAXConfig(
        **size,
        head_dim=dim,
        hidden_act=gated_act(rng),
        attention_bias=flag(rng),
        mlp_bias=flag(rng),
        use_post_norm=flag(rng),
        embedding_multiplier=rng.choice([1.0, 12, 3.7]),
        logits_scaling=rng.choice([1.0, 0.125, 0.3]),
        residual_multiplier=rng.choice([1.0, 0.22]),
        attention_multiplier=rng.choice([None, 0.0078125, 0.3]),
        rope_parameters=rope(rng, dim),
    )
