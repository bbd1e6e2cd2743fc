from __future__ import annotations

import random

from transformers import Glm4Config, GlmConfig

from tests.zoo.hf.draws import flag, gated_act, partial_rope, sizes


def draw(rng: random.Random) -> GlmConfig | Glm4Config:
    width = rng.choice([4, 7, 8, 14])
    return rng.choice([GlmConfig, Glm4Config])(
        **sizes(rng),
        head_dim=width,
        hidden_act=gated_act(rng),
        attention_dropout=rng.choice([0.0, 0.1]),
        rms_norm_eps=rng.choice([1.5625e-7, 1e-3]),
        attention_bias=flag(rng),
        rope_parameters=partial_rope(rng, width),
    )
